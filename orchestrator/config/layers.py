"""Where option values come from, in which order, and what a wrong one says.

flags > environment (ORCHESTRATOR_*) > .env > orchestrator.toml (here, then the user's) > defaults.
What decides where a key is sent or which file is written never comes from a file in the current directory.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, get_args
from urllib.parse import urlsplit

import platformdirs
from pydantic import AliasChoices, BeforeValidator, Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    CliPositionalArg,
    DotEnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from orchestrator.errors import ConfigurationError, UsageError
from orchestrator.events import Limits

CONFIG_FILE: Final = "orchestrator.toml"
SHORT_NAMES: Final = {"advanced": "parallel-search-advanced"}


def _none(value: Any) -> Any:
    return None if isinstance(value, str) and value.strip().lower() == "none" else value


def _list(value: Any) -> Any:
    return (
        tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value
    )


def _table(value: Any) -> Any:
    """`a=1,b=none` as a dict; `none` alone is the empty one, which also clears the defaults."""
    if isinstance(value, str):
        pairs = [part.partition("=") for part in _list(value) if part.lower() != "none"]
        if any(not (name and equals) for name, equals, _ in pairs):
            raise ValueError("is written NAME=N, several as A=1,B=2")
        value = {name.strip(): number.strip() for name, _, number in pairs}
    if isinstance(value, Mapping):
        value = {_long(str(name)): _none(number) for name, number in value.items()}
    return value


def _long(name: str) -> str:
    server, slash, tool = name.partition("/")
    return SHORT_NAMES.get(server, server) + slash + tool


def _over_defaults(value: Any) -> Any:
    cleared = isinstance(value, str) and "none" in value.lower().split(",")
    table = _table(value)
    return Limits().max_calls | table if isinstance(table, dict) and table and not cleared else table


def _key(value: Any) -> Any:
    if isinstance(value, str):
        value = value.strip()
        if not (value.isascii() and value.isprintable()):
            raise ValueError("holds characters that no key has")
    return value or None


def _address(value: str) -> str:
    parts = urlsplit(value.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("is not an http(s) address")
    return value.strip().rstrip("/")


class Shown:
    """How an option's value is named in help texts."""

    def __init__(self, metavar: str) -> None:
        self.metavar = metavar


class NoFlag:
    """Marks an option that is set in the environment or a file, never on the command line."""


_Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Usd = Annotated[_Dollars | None, BeforeValidator(_none), Shown("USD")]
Seconds = Annotated[_Dollars | None, BeforeValidator(_none), Shown("SECONDS")]
Count = Annotated[Annotated[int, Field(ge=0)] | None, BeforeValidator(_none), Shown("N")]
Positive = Annotated[int, Field(gt=0), Shown("N")]
PositiveOrNone = Annotated[Annotated[int, Field(gt=0)] | None, BeforeValidator(_none), Shown("N")]
Address = Annotated[str, BeforeValidator(_address), NoFlag]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_list), Shown("NAME")]
Prices = Annotated[dict[str, _Dollars], NoDecode, BeforeValidator(_table), Shown("NAME=USD")]
Calls = Annotated[
    dict[str, Annotated[int, Field(ge=0)] | None],
    NoDecode,
    BeforeValidator(_over_defaults),
    Shown("NAME=N"),
]
Ceilings = Annotated[
    dict[str, Annotated[int, Field(ge=0)] | None], NoDecode, BeforeValidator(_table), Shown("NAME=N")
]
Key = Annotated[SecretStr | None, BeforeValidator(_key), NoFlag]
POSITIONAL: Final = get_args(CliPositionalArg[str])[1]
"""How pydantic-settings marks a positional argument."""


class Settings(BaseSettings):
    """The common base: where values come from, and what a wrong one says."""

    model_config = SettingsConfigDict(
        env_prefix="ORCHESTRATOR_",
        env_ignore_empty=True,
        env_file_encoding="utf-8",
        dotenv_filtering="only_existing",
        cli_implicit_flags="toggle",
        cli_kebab_case=True,
        cli_parse_none_str="\0",  # no argument is read as None: `none` is ours, and a question may be "null"
        extra="forbid",
        populate_by_name=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )
    reads_current_directory: ClassVar[bool] = True
    """Whether .env and orchestrator.toml in the current directory count."""

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigurationError(_first_problem(type(self), error)) from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        here = _current_directory() if cls.reads_current_directory else None
        own = config_folder() / CONFIG_FILE
        sources = [init_settings, env_settings]
        if here is not None:
            sources.append(_DotEnv(settings_cls, here / ".env"))
            if here / CONFIG_FILE != own:
                sources.append(_Toml(settings_cls, here / CONFIG_FILE, trusted=False))
        return (*sources, _Toml(settings_cls, own, trusted=True))


def config_folder() -> Path:
    """The user's own configuration folder: the safe place for orchestrator.toml."""
    return platformdirs.user_config_path("orchestrator", appauthor=False)


_ONLY_SAFE = frozenset({"anthropic_base_url", "mcp_config", "output"})
"""Where a key is sent, what is executed, which file is written."""


def _refuse(file: Path, name: str, variable: str) -> ConfigurationError:
    return ConfigurationError(
        f"{file}: {name} is not taken from a file in the current directory: "
        f"put it into {config_folder() / CONFIG_FILE} or the environment ({variable})."
    )


class _DotEnv(DotEnvSettingsSource):
    """.env in the current directory: for values and keys, not for where a key goes."""

    def __init__(self, settings_cls: type[BaseSettings], file: Path) -> None:
        self._file = file
        try:
            super().__init__(settings_cls, env_file=file)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{file}: cannot be read: {error}") from None

    def __call__(self) -> dict[str, Any]:
        for name in _ONLY_SAFE:
            for spelled in (variable(name), f"ORCHESTRATOR_{name.upper()}"):
                if spelled.lower() in self.env_vars:
                    raise _refuse(self._file, spelled, variable(name))
        return super().__call__()


class _Toml(PydanticBaseSettingsSource):
    """orchestrator.toml; one file serves all commands, so a key may belong to another one."""

    def __init__(self, settings_cls: type[BaseSettings], file: Path, *, trusted: bool) -> None:
        super().__init__(settings_cls)
        self._file = file
        self._trusted = trusted

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        raise NotImplementedError  # the whole file is read at once

    def __call__(self) -> dict[str, Any]:
        data = self._read()
        known = known_options()
        for name in data:
            if name not in known:
                raise ConfigurationError(f"{self._file}: there is no setting {name!r}.")
            if not self._trusted and name in _ONLY_SAFE:
                raise _refuse(self._file, name, variable(name))
        fields = self.settings_cls.model_fields
        return {_alias(fields[name], name): value for name, value in data.items() if name in fields}

    def _read(self) -> dict[str, Any]:
        try:
            return tomllib.loads(self._file.read_text(encoding="utf-8-sig"))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise ConfigurationError(f"{self._file}: cannot be read: {error.strerror}") from None
        except ValueError as error:  # not TOML, not UTF-8
            raise ConfigurationError(f"{self._file}: {error}") from None


def present(names: Iterable[str]) -> dict[str, str]:
    """The values that these environment variables have now. Raises `UsageError` for one that is not set."""
    missing = [name for name in names if not os.environ.get(name)]
    if missing:
        raise UsageError(f"The variable {missing[0]} is not set.")
    return {name: os.environ[name] for name in names}


def known_options() -> frozenset[str]:
    """The options of all commands: what settings files and the environment may name."""
    return frozenset(
        name
        for cls in _subclasses(Settings)
        for name, field in cls.model_fields.items()
        if POSITIONAL not in field.metadata
    )


def _subclasses(cls: type[Settings]) -> Iterator[type[Settings]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)


def _alias(field: FieldInfo, name: str) -> str:
    alias = field.validation_alias
    return str(alias.choices[0]) if isinstance(alias, AliasChoices) else name


def variable(name: str) -> str:
    """The environment variable of an option."""
    return name.upper() if name.startswith(("anthropic_", "parallel_")) else f"ORCHESTRATOR_{name.upper()}"


def _first_problem(cls: type[Settings], error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    name = str(first["loc"][0]).lower() if first["loc"] else cls.__name__
    field = cls.model_fields.get(name)
    if field is None:
        return f"There is no option {name}."
    if POSITIONAL in field.metadata:
        return f"{name.upper()} is missing or empty: {field.description}"
    what = first["msg"].removeprefix("Value error, ").replace("Input should", "should")
    flag = "" if NoFlag in field.metadata else f"--{name.replace('_', '-')}, "
    return f"{flag}{variable(name)} or {name} in {CONFIG_FILE}: the value {what}."


def _current_directory() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it was removed under us
        return None
