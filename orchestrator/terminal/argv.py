"""A command line out of a settings class: pydantic-settings parses, this decides how it reads.

An option stands in the help under the class that defines it; its text is the docstring under the field.
Keys and the finer points have no flag: a key on a command line is seen by every process of the machine.
"""

from __future__ import annotations

import argparse
import inspect
import shutil
from collections.abc import Sequence
from typing import Any, Literal, NoReturn, TypeVar, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pydantic_settings import CliApp, CliSettingsSource, SettingsError

from orchestrator.config.layers import POSITIONAL, NoFlag, Settings, Shown
from orchestrator.errors import UsageError

Command = TypeVar("Command", bound=Settings)


def parse(command: type[Command], prog: str, args: Sequence[str], *, without: frozenset[str]) -> Command:
    """The command with its options, from `args` and every other source; `without` names unused options.

    Raises `UsageError`; `--help` prints and raises `SystemExit(0)`.
    """
    help_of = _Help(command, prog, without)
    source = CliSettingsSource[Any](command, root_parser=help_of.parser, add_argument_method=help_of.add)
    try:
        return CliApp.run(command, cli_args=list(args), cli_settings_source=source)
    except SettingsError as error:
        raise UsageError(f"{error}.") from None


def options(command: type[Settings]) -> dict[str, dict[str, FieldInfo]]:
    """The options of a command by group, as the help and the manual show them."""
    groups: dict[str, dict[str, FieldInfo]] = {}
    for name, field in command.model_fields.items():
        groups.setdefault(_group(command, name), {})[name] = field
    return groups


def has_flag(field: FieldInfo) -> bool:
    return NoFlag not in field.metadata


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def metavar(field: FieldInfo, name: str) -> str:
    """How the value is named."""
    shown = [item for item in field.metadata if isinstance(item, Shown)]
    if shown:
        return shown[-1].metavar
    if get_origin(field.annotation) is Literal:
        return "|".join(get_args(field.annotation))
    return name.upper()


def default(field: FieldInfo) -> str:
    """The default as it would be typed; empty where there is none to type."""
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, dict):
        return ",".join(f"{name}={number}" for name, number in value.items())
    return "" if value in (None, False, (), PydanticUndefined) else str(value)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message[:1].upper()}{message[1:]}. `{self.prog} --help` shows how it is used.")


class _Help:
    def __init__(self, command: type[Settings], prog: str, without: frozenset[str]) -> None:
        self.command = command
        self.without = without
        self.parser = _Parser(
            prog=prog,
            usage=" ".join(filter(None, (prog, positional(command), "[options]"))),
            description=inspect.getdoc(command),
            formatter_class=_Format,
            allow_abbrev=False,
        )
        self.groups: dict[str, Any] = {}

    def add(self, parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        """Add one option, as pydantic-settings calls it, under its group and with its own words."""
        name = kwargs.get("dest", args[0])
        name = name if name in self.command.model_fields else name.lower()
        field = self.command.model_fields[name]
        if name in self.without or not has_flag(field):
            return None
        shown = default(field)
        kwargs["help"] = f"{field.description}{f' [{shown}]' if shown else ''}".replace("%", "%%")
        if "metavar" in kwargs:
            kwargs["metavar"] = metavar(field, name)
        group = _group(self.command, name)
        if not group:
            return parser.add_argument(*args, **kwargs)
        if group not in self.groups:
            self.groups[group] = parser.add_argument_group(group)
        return self.groups[group].add_argument(*args, **kwargs)


class _Format(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns, 110) - 2
        super().__init__(prog, max_help_position=30, width=width)


def _group(command: type[Settings], name: str) -> str:
    """What the class that defines the option says of itself; empty for the command's own."""
    owner = next(cls for cls in command.__mro__ if name in inspect.get_annotations(cls))
    return "" if owner is command else (inspect.getdoc(owner) or "").partition("\n")[0]


def positional(command: type[Settings]) -> str:
    """What stands behind the command's name, as in `ask QUESTION`."""
    fields = command.model_fields.items()
    return " ".join(metavar(field, name) for name, field in fields if POSITIONAL in field.metadata)
