"""The shape of the code: who imports whom, who may know an SDK, how long modules are."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import orchestrator

PACKAGE = Path(orchestrator.__file__).parent

LEVELS: tuple[frozenset[str], ...] = tuple(
    frozenset(names.split())
    for names in (
        "events errors",
        "settings config",
        "text prices billing leftovers passes loops budget daily"
        " claims citing harvesting sources citations trace",
        "backends upstream mcp_client",
        "prompts result past starting outcome runner",
        "render gateway serving",
        "cli __main__ terminal",
    )
)
"""Left never imports right; a new module must be given its place here."""

SDKS = {
    "anthropic": {"backends/connector.py", "backends/faults.py", "backends/service.py"},
    "claude_agent_sdk": {"backends/agent_sdk.py", "backends/engine.py", "backends/hooks.py"},
    "mcp": {
        "upstream.py",
        "mcp_client/mcp_wire.py",
        "mcp_client/mcp_faults.py",
        "gateway.py",
        "serving/doors.py",
        "serving/relay.py",
        "serving/answers.py",
        "serving/desk.py",
    },
}
"""The modules that may know an SDK, besides the stand-ins for `mcp`."""
SDKS["mcp_types"] = SDKS["mcp"]

DISTRIBUTIONS = {"markdown_it_py": "markdown_it"}
"""Packages whose import has another name."""
BROUGHT = {"anyio", "httpx2", "mcp_types", "pydantic", "pydantic_core", "starlette", "uvicorn"}
"""What the SDKs and pydantic-settings are built on and show in their own interfaces."""

CEILING = 360
"""Lines of a module."""
LONGEST_FUNCTION = 50
"""Lines of a body, without the docstring."""


def modules(*, offline: bool = False) -> list[Path]:
    return [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if offline or "offline" not in path.relative_to(PACKAGE).parts
    ]


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: Path) -> Iterator[str]:
    """Dotted names of everything a module imports, wherever it does so."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module
            yield node.module
            if node.module == "orchestrator":
                yield from (f"orchestrator.{alias.name}" for alias in node.names)


def ours(path: Path) -> set[str]:
    """Top-level modules of this package that a module imports."""
    names = {name.split(".")[1] for name in imported(path) if name.startswith("orchestrator.")}
    return names - {"__version__"}


def place(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def level(name: str) -> int:
    found = [number for number, names in enumerate(LEVELS) if name in names]
    assert found, f"{name} has no place in LEVELS"
    return found[0]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_left_never_imports_right(path: Path) -> None:
    """The dependency direction of the layers; the stand-ins may be started by those that need them."""
    if path == PACKAGE / "__init__.py":
        return
    here = level(place(path))
    for name in ours(path) - {"offline"}:
        assert level(name) <= here, f"{place(path)} imports {name}"


def test_the_stand_ins_know_nothing_of_what_they_check() -> None:
    """They keep a bill of their own: no budget, no prices, nothing but the vocabulary and the settings."""
    for path in modules(offline=True):
        if "offline" in path.relative_to(PACKAGE).parts:
            assert ours(path) <= {"offline", "events", "errors", "settings"}, path


@pytest.mark.parametrize("sdk", sorted(SDKS))
def test_an_sdk_is_known_where_it_belongs_and_nowhere_else(sdk: str) -> None:
    knowing = {
        path.relative_to(PACKAGE).as_posix()
        for path in modules()
        if any(name.split(".")[0] == sdk for name in imported(path))
    }
    assert knowing <= SDKS[sdk]


def test_every_package_that_is_imported_is_declared() -> None:
    """Or is brought along, for good, by one that is."""
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {re.split(r"[<>=\[]", line)[0].replace("-", "_").lower() for line in project["dependencies"]}
    declared = {DISTRIBUTIONS.get(name, name) for name in declared}
    foreign = {name.split(".")[0] for path in modules(offline=True) for name in imported(path)}
    foreign -= set(sys.stdlib_module_names) | {"orchestrator"}
    assert foreign - declared - BROUGHT == set()


@pytest.mark.parametrize(
    "module", ["orchestrator", "orchestrator.cli", "orchestrator.settings", "orchestrator.trace"]
)
def test_importing_loads_no_sdk(module: str) -> None:
    """`--help` must not wait for what only a run needs."""
    code = f"import sys, {module}; print([name for name in {sorted(SDKS)!r} if name in sys.modules])"
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "[]"


def test_public_names_are_sorted_and_there() -> None:
    assert sorted(orchestrator.__all__) == orchestrator.__all__
    for name in orchestrator.__all__:
        assert getattr(orchestrator, name) is not None
    with pytest.raises(AttributeError):
        _ = orchestrator.nothing


@pytest.mark.parametrize("path", modules(offline=True), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_is_short_and_says_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= CEILING
    assert ast.get_docstring(tree(path))
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
            assert (node.end_lineno or 0) - first.lineno < LONGEST_FUNCTION, f"{path}: {node.name}"


def test_every_list_of_public_names_is_sorted() -> None:
    for path in modules(offline=True):
        for node in tree(path).body:
            if isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == ["__all__"]:
                names = ast.literal_eval(node.value)
                assert list(names) == sorted(names), path
