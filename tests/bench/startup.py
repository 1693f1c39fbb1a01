"""How long the help takes, as a ratio to the bare import of the settings library: at most 2 is the goal.

python tests/bench/startup.py [rounds]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLOOR: tuple[str, ...] = ("-c", "import pydantic_settings")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("-m", "orchestrator", "--help"),
    ("-m", "orchestrator", "ask", "--help"),
    ("-m", "orchestrator", "runs", "--help"),
    ("-m", "orchestrator", "--version"),
)


def seconds(arguments: tuple[str, ...]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    for arguments in (FLOOR, *COMMANDS):
        seconds(arguments)  # compiled files and caches are warm from here on
    times: dict[tuple[str, ...], list[float]] = {arguments: [] for arguments in (FLOOR, *COMMANDS)}
    for _ in range(rounds):  # in turns, so that a busy moment hits all alike
        for arguments, measured in times.items():
            measured.append(seconds(arguments))
    floor = statistics.median(times[FLOOR])
    lines = [f"median of {rounds}; {' '.join(FLOOR)}: {floor:.3f} s"]
    for arguments in COMMANDS:
        median = statistics.median(times[arguments])
        lines.append(f"{' '.join(arguments):<35} {median:.3f} s, {median / floor:.2f} times as long")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
