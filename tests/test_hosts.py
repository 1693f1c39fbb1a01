"""The entry in a host's own file: put in, taken out, and nobody else's bytes touched."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config.servers import builtin_folder
from orchestrator.errors import UsageError
from orchestrator.serving import hosts, jsonedit
from orchestrator.serving.hosts import Machine

OTHERS = (
    '{\r\n\t"theme" : "d\\u0061rk",\r\n\t"mcpServers":{"files": {"command":"npx",  "args":["-y","x y"],'
    '"big": 12345678901234567890, "f": 1.0e0}},\r\n\t"last": [ ]\r\n}\r\n'
)
PATH = ("mcpServers", "orchestrator")


@pytest.fixture
def linux(nothing_from_outside: Path) -> Machine:
    return Machine("linux", {"HOME": str(nothing_from_outside)}, sys.executable)


def desktop(machine: Machine) -> Path:
    (file,) = hosts.files("claude-desktop", machine)
    return file


def write(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


# --- the text ---------------------------------------------------------------------------------------------


def test_putting_a_member_in_changes_no_byte_of_the_others() -> None:
    """The issue: merged into what is there without losing a byte of anyone else's entries."""
    edited = jsonedit.put(OTHERS, PATH, {"command": "python"})
    at = edited.index(', "orchestrator"')
    end = edited.index("}", edited.index('"command": "python"')) + 1
    assert edited[:at] + edited[end:] == OTHERS
    assert json.loads(edited)["mcpServers"]["orchestrator"] == {"command": "python"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
FORMAT = st.sampled_from([None, 0, 2, "\t"])


@given(rest=st.dictionaries(st.text(max_size=5), JSON, max_size=4), others=st.data(), indent=FORMAT)
def test_what_was_put_in_and_taken_out_again_leaves_the_text_as_it_was(
    rest: dict[str, Any], others: st.DataObject, indent: Any
) -> None:
    """Whatever stands in the file and however it is laid out."""
    servers = others.draw(st.dictionaries(st.text(min_size=1, max_size=5), JSON, min_size=1, max_size=3))
    servers.pop("orchestrator", None)
    text = json.dumps(rest | {"mcpServers": servers or {"a": 1}}, indent=indent)
    value = others.draw(JSON)
    edited = jsonedit.put(text, PATH, value)
    whole = json.loads(edited)
    assert whole["mcpServers"].pop("orchestrator") == value
    assert whole == json.loads(text)
    assert jsonedit.put(edited, PATH, value) == edited
    assert jsonedit.drop(edited, PATH) == text


@pytest.mark.parametrize(
    "text", ["", "  \n", "{}", '{"a": 1}', '{"mcpServers": {}}', '{"mcpServers":{ }, "b":2}']
)
def test_missing_objects_are_made(text: str) -> None:
    edited = jsonedit.put(text, PATH, {"x": 1})
    assert json.loads(edited) == (json.loads(text or "{}") if text.strip() else {}) | {
        "mcpServers": {"orchestrator": {"x": 1}}
    }


def test_an_entry_of_ours_is_replaced_in_its_place() -> None:
    text = '{"mcpServers": {"orchestrator": {"command": "old"}, "z": 1}}'
    assert jsonedit.put(text, PATH, {"c": 1}).startswith('{"mcpServers": {"orchestrator": {\n')
    assert list(json.loads(jsonedit.put(text, PATH, {"c": 1}))["mcpServers"]) == ["orchestrator", "z"]


@pytest.mark.parametrize("text", ["[]", '{"mcpServers": []}', "{", '{// a comment\n"mcpServers": {}}'])
def test_what_is_no_plain_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        jsonedit.put(text, PATH, {})


# --- the files --------------------------------------------------------------------------------------------


def test_installing_writes_the_entry_keeps_a_dated_copy_and_says_so(linux: Machine) -> None:
    file = desktop(linux)
    write(file, OTHERS.encode())
    said = hosts.install("claude-desktop", linux)
    assert hosts.installed("claude-desktop", linux)[file] == hosts.entry("claude-desktop", linux)
    (copy,) = file.parent.glob("*.bak")
    assert copy.read_bytes() == OTHERS.encode()
    assert re.fullmatch(r"claude_desktop_config\.json\.\d{8}-\d{6}-\d+\.bak", copy.name)
    assert copy.name in said[0] and "start it again" in said[-1]


def test_installing_twice_changes_nothing_the_second_time(linux: Machine) -> None:
    hosts.install("claude-desktop", linux)
    file = desktop(linux)
    before = file.read_bytes()
    assert "nothing to change" in hosts.install("claude-desktop", linux)[0]
    assert file.read_bytes() == before
    assert not list(file.parent.glob("*.bak"))


def test_uninstalling_restores_the_file(linux: Machine) -> None:
    file = desktop(linux)
    write(file, OTHERS.encode())
    hosts.install("claude-desktop", linux)
    hosts.uninstall("claude-desktop", linux)
    assert file.read_bytes() == OTHERS.encode()
    assert "nothing to change" in hosts.uninstall("claude-desktop", linux)[0]


def test_uninstalling_where_nothing_is_makes_nothing(linux: Machine) -> None:
    hosts.uninstall("claude-desktop", linux)
    assert not desktop(linux).exists()


def test_a_byte_order_mark_and_the_mode_of_the_file_stay(linux: Machine) -> None:
    """Notepad writes one; the file may hold keys of others."""
    file = desktop(linux)
    write(file, b"\xef\xbb\xbf" + OTHERS.encode())
    file.chmod(0o640)
    hosts.install("claude-desktop", linux)
    assert file.read_bytes().startswith(b"\xef\xbb\xbf{")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_link_to_the_file_stays_a_link(linux: Machine, tmp_path: Path) -> None:
    """Dotfiles kept elsewhere."""
    real = tmp_path / "real.json"
    real.write_text("{}", encoding="utf-8")
    file = desktop(linux)
    file.parent.mkdir(parents=True)
    file.symlink_to(real)
    hosts.install("claude-desktop", linux)
    assert file.is_symlink()
    assert "orchestrator" in real.read_text(encoding="utf-8")


@pytest.mark.parametrize("data", [b"{ not json", b"\xff\xfe{\x00}\x00", b'{"mcpServers": {},}'])
def test_a_file_that_is_no_json_is_left_alone_and_named(linux: Machine, data: bytes) -> None:
    file = desktop(linux)
    write(file, data)
    with pytest.raises(UsageError, match="claude_desktop_config"):
        hosts.install("claude-desktop", linux)
    assert file.read_bytes() == data
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_change_by_the_app_meanwhile_is_not_lost(linux: Machine) -> None:
    """The app may write its file between our reading and our writing."""
    file = desktop(linux)
    write(file, b'{"a": 1}')
    rounds: list[int] = []

    def change(text: str) -> str:
        if not rounds:
            rounds.append(1)
            file.write_bytes(b'{"a": 2}')
        return jsonedit.put(text, PATH, {"x": 1})

    hosts._edit(file, change)
    assert json.loads(file.read_bytes()) == {"a": 2, "mcpServers": {"orchestrator": {"x": 1}}}
    assert len(list(file.parent.glob("*.bak"))) == 1


def test_claude_code_is_written_where_it_reads(linux: Machine, tmp_path: Path) -> None:
    """Its user scope; `CLAUDE_CONFIG_DIR` moves it."""
    assert hosts.files("claude-code", linux) == [Path(linux.environ["HOME"]) / ".claude.json"]
    moved = Machine("linux", {**linux.environ, "CLAUDE_CONFIG_DIR": str(tmp_path)}, sys.executable)
    hosts.install("claude-code", moved)
    told = json.loads((tmp_path / ".claude.json").read_text(encoding="utf-8"))
    assert told["mcpServers"]["orchestrator"]["type"] == "stdio"


def test_the_packaged_windows_app_gets_its_own_file(tmp_path: Path) -> None:
    """Case I112: there the usual path is never read; both are written where both exist."""
    environ = {
        "USERPROFILE": str(tmp_path),
        "APPDATA": str(tmp_path / "Roaming"),
        "LOCALAPPDATA": str(tmp_path / "Local"),
    }
    machine = Machine("win32", environ, r"C:\Python\python.exe")
    usual = tmp_path / "Roaming" / "Claude" / "claude_desktop_config.json"
    assert hosts.files("claude-desktop", machine) == [usual]
    packaged = tmp_path / "Local/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming/Claude"
    packaged.mkdir(parents=True)
    own = packaged / "claude_desktop_config.json"
    assert hosts.files("claude-desktop", machine) == [own]
    usual.parent.mkdir(parents=True)
    assert hosts.files("claude-desktop", machine) == [own, usual]
    said = hosts.install("claude-desktop", machine)
    assert str(own) in said[0] and str(usual) in said[1]


def test_macos_has_its_own_place(tmp_path: Path) -> None:
    machine = Machine("darwin", {"HOME": str(tmp_path)}, "/usr/bin/python3")
    assert hosts.files("claude-desktop", machine) == [
        tmp_path / "Library/Application Support/Claude/claude_desktop_config.json"
    ]


@pytest.mark.parametrize("host", ["cursor", "vscode"])
def test_for_some_hosts_it_only_shows_what_goes_where(host: hosts.Host, linux: Machine) -> None:
    text, advice = hosts.shown(host, linux)
    assert "orchestrator" in json.loads(text)["servers" if host == "vscode" else "mcpServers"]
    assert "mcp.json" in advice
    with pytest.raises(UsageError, match="--print"):
        hosts.install(host, linux)


# --- the entry --------------------------------------------------------------------------------------------


def test_the_entry_starts_this_interpreter_by_its_whole_path(linux: Machine) -> None:
    """Case I103: the app does not see the shell's PATH, so no npx, no bare `python`."""
    command = hosts.entry("claude-desktop", linux)["command"]
    assert Path(command).is_absolute() and os.access(command, os.X_OK)


@pytest.mark.parametrize("python", [r"C:\Users\J Müller\Python 3\python.exe", "/home/ö x/bin/python"])
def test_no_argument_has_a_space_whatever_the_paths(python: str, tmp_path: Path) -> None:
    """Case I104: cmd.exe /C breaks on a space inside an argument; paths go into `env` instead."""
    machine = Machine("darwin", {"HOME": str(tmp_path / "a b é")}, python)
    told = hosts.entry("claude-desktop", machine, {"ORCHESTRATOR_MCP_CONFIG": "/a b/ü.json"})
    assert not any(" " in argument for argument in told["args"])
    assert told["env"]["ORCHESTRATOR_MCP_CONFIG"] == "/a b/ü.json"
    hosts.install("claude-desktop", machine, {"ORCHESTRATOR_MCP_CONFIG": "/a b/ü.json"})
    (written,) = hosts.installed("claude-desktop", machine).values()
    assert written == told


def test_no_key_is_in_the_entry_unless_it_was_given(linux: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARALLEL_API_KEY", "secret-of-the-user")
    assert "secret" not in hosts.shown("claude-code", linux)[0]
    text, _ = hosts.shown("claude-code", linux, {"PARALLEL_API_KEY": "secret-of-the-user"})
    assert "secret-of-the-user" in text


def test_an_unknown_host_is_told_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"claude-desktop, claude-code, cursor, vscode"):
        hosts.host_named("emacs")


# --- what is shipped --------------------------------------------------------------------------------------

SHIPPED = {
    "claude-desktop": "claude_desktop_config.json",
    "claude-code": "claude_code.json",
    "cursor": "cursor_mcp.json",
    "vscode": "vscode_mcp.json",
}


@pytest.mark.parametrize("host", get_args(hosts.Host))
def test_the_shipped_examples_are_what_install_would_write(host: hosts.Host) -> None:
    """Only the interpreter's path differs."""
    machine = Machine("linux", {"HOME": "/home/you"}, "/absolute/path/to/python", source=None)
    file = builtin_folder() / SHIPPED[host]
    assert file.read_text(encoding="utf-8") == hosts.shown(host, machine)[0] + "\n"


def test_a_plain_remote_entry_is_shipped_with_its_trade_off() -> None:
    told = json.loads((builtin_folder() / "remote.json").read_text(encoding="utf-8"))
    assert told["mcpServers"]["parallel-search"]["url"].startswith("https://")
    assert "straight to the search server" in (builtin_folder() / "README.md").read_text(encoding="utf-8")
