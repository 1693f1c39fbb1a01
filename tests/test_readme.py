"""The README says what is so. Run as a script it writes the table of options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from orchestrator import cli
from orchestrator.config import layers
from orchestrator.errors import EXIT_CODES, USAGE_EXIT_CODE
from orchestrator.terminal import argv

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
_OPTIONS = re.compile(r"(?<=tests/test_readme\.py` -->\n).*(?=<!-- end of options -->)", re.DOTALL)
_COMMAND = re.compile(r"-m orchestrator (?!COMMAND)([a-z-]+)")


def options_table() -> str:
    """All options of `ask`, by group, as the help shows them."""
    lines = []
    for group, fields in argv.options(cli.Ask).items():
        if not group:
            continue
        lines += ["", f"**{group}**", "", "| option | environment | default | |", "|---|---|---|---|"]
        for name, field in fields.items():
            flag = f"`{argv.flag(name)}`" if argv.has_flag(field) else ""
            default = f"`{argv.default(field)}`" if argv.default(field) else ""
            choices = ", ".join(f"`{word}`" for word in get_args(field.annotation) if isinstance(word, str))
            meaning = f"{field.description} {f'One of {choices}.' if choices else ''}".strip()
            lines.append(f"| {flag} | `{layers.variable(name)}` | {default} | {meaning} |")
    return "\n".join([*lines, "", ""])


def test_the_table_of_options_is_current() -> None:
    found = _OPTIONS.search(README.read_text(encoding="utf-8"))
    assert found
    assert found.group() == options_table(), "run: python tests/test_readme.py"


def test_every_command_named_exists() -> None:
    known = {name.split()[0] for group in cli.COMMANDS.values() for name in group}
    named = set(_COMMAND.findall(README.read_text(encoding="utf-8")))
    assert named <= known
    assert {"ask", "doctor", "mcp"} <= named


def test_every_status_stands_under_its_exit_code() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", README.read_text(encoding="utf-8"), re.MULTILINE)
    said = {status: int(code) for code, row in rows for status in re.findall(r"`(\w+)`", row)}
    assert said == EXIT_CODES
    assert str(USAGE_EXIT_CODE) in {code for code, _ in rows}


def test_ci_runs_the_test_command_of_the_readme() -> None:
    """`.ci/run` takes the line from the README, so they cannot differ."""
    text = README.read_text(encoding="utf-8")
    pattern = re.search(r"grep -m1 -E '(.*?)' README\.md", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert pattern
    assert len(re.findall(pattern[1], text, re.MULTILINE)) == 1


def test_pinned_versions_are_names_and_versions_only() -> None:
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        assert re.fullmatch(r"#.*|[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*", line), line


def test_every_module_named_exists() -> None:
    for name in re.findall(r"`([a-z_]+)(?:\.py|/)`", README.read_text(encoding="utf-8")):
        assert (ROOT / "orchestrator" / name).is_dir() or (ROOT / "orchestrator" / f"{name}.py").is_file(), (
            name
        )


if __name__ == "__main__":
    README.write_text(
        _OPTIONS.sub(lambda _: options_table(), README.read_text(encoding="utf-8")), encoding="utf-8"
    )
