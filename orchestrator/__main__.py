"""`python -m orchestrator`."""

from __future__ import annotations

import sys

from orchestrator import cli


def main() -> None:
    sys.exit(cli.main())


if __name__ == "__main__":
    main()
