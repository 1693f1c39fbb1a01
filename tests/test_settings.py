"""Options: where they come from, what a wrong one says, and what servers they name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from orchestrator import cli
from orchestrator.config.layers import CONFIG_FILE
from orchestrator.errors import ConfigurationError, UsageError
from orchestrator.events import Limits, RunStarted
from orchestrator.settings import Options, Server, Settings
from orchestrator.terminal import argv

KEY = "sk-ant-test-0123456789abcdef"
PARALLEL = "pk-0123456789abcdef"


@pytest.fixture
def config(nothing_from_outside: Path) -> Path:
    """The user's own orchestrator.toml, not yet there."""
    folder = platformdirs.user_config_path("orchestrator", appauthor=False)
    assert folder.is_relative_to(nothing_from_outside)
    folder.mkdir(parents=True)
    return folder / CONFIG_FILE


def parse(*args: str) -> cli.Ask:
    return argv.parse(cli.Ask, "ask", ["q", *args], without=cli.Ask.unused)


def servers_file(entries: dict[str, Any]) -> Path:
    file = Path("servers.json")
    file.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    return file


def options_of(**values: Any) -> Options:
    return Options(**values)


def named(servers: tuple[Server, ...]) -> list[str]:
    return [server.name for server in servers]


# --- where values come from


def test_flags_win_over_environment_over_dotenv_over_toml_over_defaults(
    monkeypatch: pytest.MonkeyPatch, config: Path
) -> None:
    """The order that DESIGN fixes, taken away layer by layer."""
    assert parse().max_steps == 12
    config.write_text("max_steps = 3", encoding="utf-8")
    assert parse().max_steps == 3
    Path(CONFIG_FILE).write_text("max_steps = 4", encoding="utf-8")
    assert parse().max_steps == 4
    Path(".env").write_text("ORCHESTRATOR_MAX_STEPS=5\nSOMETHING_ELSE=1\n", encoding="utf-8")
    assert parse().max_steps == 5
    monkeypatch.setenv("ORCHESTRATOR_MAX_STEPS", "6")
    assert parse().max_steps == 6
    assert parse("--max-steps", "7").max_steps == 7
    assert options_of(max_steps=8).max_steps == 8


@pytest.mark.parametrize("word", ["none", "None", "NONE"])
def test_none_is_no_limit_from_every_source(monkeypatch: pytest.MonkeyPatch, config: Path, word: str) -> None:
    """`none` is the word for no limit everywhere."""
    for name in ("max_usd", "max_steps", "max_seconds", "daily_usd"):
        assert getattr(parse(argv.flag(name), word), name) is None
    monkeypatch.setenv("ORCHESTRATOR_MAX_USD", word)
    assert Options().limits.max_usd is None
    config.write_text(f'max_seconds = "{word}"\nmax_calls = {{ advanced = "{word}" }}', encoding="utf-8")
    assert Options().max_seconds is None
    assert Options().max_calls == {"parallel-search-advanced": None}


def test_zero_is_not_none() -> None:
    """`None` = no limit, `0` = nothing allowed."""
    limits = parse("--max-usd", "0", "--max-calls", "web_search=0").limits
    assert limits.max_usd == 0
    assert limits.max_calls["web_search"] == 0


@pytest.mark.parametrize("given", [["web_search=6,advanced=4"], ["web_search=6", "advanced=4"]])
def test_given_call_caps_are_merged_over_the_defaults(
    monkeypatch: pytest.MonkeyPatch, given: list[str]
) -> None:
    """Repeated on the command line, comma lists in the environment; `advanced` is a short name."""
    expected = {"parallel-search-advanced": 4, "web_search": 6}
    assert parse(*(word for item in given for word in ("--max-calls", item))).max_calls == expected
    monkeypatch.setenv("ORCHESTRATOR_MAX_CALLS", ",".join(given))
    assert Options().max_calls == expected
    assert options_of(max_calls={"fetch": 1}).max_calls == {"parallel-search-advanced": 2, "fetch": 1}
    assert options_of(max_calls="none").max_calls == {}


def test_lists_are_comma_separated_or_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse("--include-domain", "a.org", "--include-domain", ".gov,b.org").include_domain == (
        "a.org",
        ".gov",
        "b.org",
    )
    monkeypatch.setenv("ORCHESTRATOR_EXCLUDE_DOMAIN", "a.org, b.org")
    monkeypatch.setenv("ORCHESTRATOR_PRICE_CALL", "exa=0,web_search=0.002")
    assert Options().exclude_domain == ("a.org", "b.org")
    assert Options().price_call == {"exa": 0, "web_search": 0.002}


def test_defaults_of_options_are_the_defaults_of_limits() -> None:
    """One run without options and `Limits()` allow the same."""
    assert Options().limits == Limits()


def test_keys_keep_their_usual_names_and_have_no_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key on a command line would be seen by every process of the machine."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", f" {KEY}\n")
    monkeypatch.setenv("PARALLEL_API_KEY", "")
    options = Options()
    assert options.anthropic_api_key is not None
    assert options.anthropic_api_key.get_secret_value() == KEY
    assert options.parallel_api_key is None
    assert KEY not in repr(options)
    with pytest.raises(UsageError, match="anthropic-api-key"):
        parse("--anthropic-api-key", KEY)


def test_a_key_may_come_from_dotenv() -> None:
    Path(".env").write_text(f"ANTHROPIC_API_KEY={KEY}\n", encoding="utf-8")
    options = Options()
    assert options.anthropic_api_key is not None


# --- what a wrong value says


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--max-usd", "-1"),
        ("--max-usd", "nan"),
        ("--max-usd", "inf"),
        ("--max-usd", "lots"),
        ("--max-steps", "1.5"),
        ("--reserve", "2"),
        ("--max-calls", "web_search"),
        ("--max-calls", "=3"),
        ("--price-call", "exa=-1"),
        ("--max-output-tokens", "0"),
        ("--backend", "other"),
        ("--effort", "huge"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_the_option(flag: str, value: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse(f"{flag}={value}")
    assert flag in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_wrong_key_is_never_in_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-sécret\x07value")
    with pytest.raises(ConfigurationError, match="ANTHROPIC_API_KEY") as raised:
        Options()
    assert "cret" not in str(raised.value)


def test_an_unknown_setting_in_a_file_is_refused_by_name(config: Path) -> None:
    config.write_text("max_usdd = 1", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"orchestrator\.toml.*max_usdd"):
        Options()


def test_a_setting_of_another_command_is_no_mistake(config: Path) -> None:
    """One file serves all commands."""
    config.write_text('format = "json"\nquiet = true', encoding="utf-8")
    assert parse().format == "json"
    assert Options().max_steps == 12


@pytest.mark.parametrize("text", ["max_usd = ", "\xff"])
def test_a_broken_toml_file_is_named(config: Path, text: str) -> None:
    config.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigurationError, match=r"orchestrator\.toml"):
        Options()


def test_an_unknown_keyword_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="max_usdd"):
        options_of(max_usdd=1)


# --- the current directory is not trusted with keys' ways and with commands


@pytest.mark.parametrize("name", ["anthropic_base_url", "mcp_config", "output"])
def test_where_a_key_goes_is_never_taken_from_toml_here(config: Path, name: str) -> None:
    """A line there is exit 2 and names the safe place."""
    Path(CONFIG_FILE).write_text(f'{name} = "https://elsewhere.example"', encoding="utf-8")
    with pytest.raises(ConfigurationError) as raised:
        parse()
    assert str(config) in str(raised.value)
    Path(CONFIG_FILE).rename(config)
    parse()


@pytest.mark.parametrize(
    "variable",
    [
        "ANTHROPIC_BASE_URL",
        "anthropic_base_url",
        "ORCHESTRATOR_ANTHROPIC_BASE_URL",
        "ORCHESTRATOR_MCP_CONFIG",
        "ORCHESTRATOR_OUTPUT",
    ],
)
def test_where_a_key_goes_is_never_taken_from_dotenv(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    Path(".env").write_text(f"export {variable}=https://elsewhere.example\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=f"(?i){variable}"):
        parse()
    Path(".env").unlink()
    monkeypatch.setenv(variable, "https://elsewhere.example")
    parse()


def test_variables_of_dotenv_never_stand_in_a_server_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line in .env cannot move a server that the user's own file names by a variable."""
    file = servers_file({"mine": {"url": "${SEARCH_URL}", "headers": {"x-api-key": "k"}}})
    Path(".env").write_text("SEARCH_URL=https://elsewhere.example\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="SEARCH_URL"):
        options_of(mcp_config=file).servers()
    monkeypatch.setenv("SEARCH_URL", "https://search.example/mcp")
    assert options_of(mcp_config=file).servers()[0].url == "https://search.example/mcp"


def test_a_command_can_leave_the_current_directory_unread() -> None:
    class Elsewhere(Options):
        reads_current_directory = False

    Path(".env").write_text("ORCHESTRATOR_MAX_STEPS=5", encoding="utf-8")
    Path(CONFIG_FILE).write_text('anthropic_base_url = "https://elsewhere.example"', encoding="utf-8")
    assert Elsewhere().max_steps == 12


def test_the_user_s_own_folder_may_be_the_current_one(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text('anthropic_base_url = "https://proxy.example/"', encoding="utf-8")
    monkeypatch.chdir(config.parent)
    assert Options().anthropic_base_url == "https://proxy.example"


# --- servers


def test_without_a_key_there_is_one_anonymous_server() -> None:
    (server,) = Options().servers()
    assert server.name == "parallel-search"
    assert server.url == "https://search.parallel.ai/mcp"
    assert server.authorization_token is None
    assert not server.headers
    assert server.tools["web_search"].role == "search"


def test_with_a_key_the_advanced_server_stands_beside_it_and_settings_are_pinned() -> None:
    """FACTS section 1: URL query with dotted paths, authenticated connections only."""
    options = options_of(
        parallel_api_key=PARALLEL, mode="turbo", max_results=12, max_chars=2000, include_domain="a.org,.gov"
    )
    plain, advanced = options.servers()
    pinned = (
        "&advanced_settings.excerpt_settings.max_chars_per_result=2000&advanced_settings.max_results=12"
        "&advanced_settings.source_policy.include_domains=a.org,.gov"
    )
    assert set((plain.url or "").partition("?")[2].split("&")) == set(f"mode=turbo{pinned}".split("&"))
    assert "mode=advanced" in (advanced.url or "")
    assert plain.authorization_token is not None
    assert plain.authorization_token.get_secret_value() == PARALLEL
    assert PARALLEL not in repr(plain)
    assert options.notices() == ()


def test_the_price_follows_the_pinned_mode_and_result_count() -> None:
    """FACTS section 4: turbo and fast $1, basic and advanced $5 per 1,000, $1 per 1,000 extra results."""
    plain, advanced = options_of(parallel_api_key=PARALLEL, max_results=15).servers()
    assert plain.tools["web_search"].usd_per_call == pytest.approx(0.001 + 5 * 0.001)
    assert advanced.tools["web_search"].usd_per_call == pytest.approx(0.005 + 5 * 0.001)
    (anonymous,) = options_of(mode="advanced").servers()
    assert anonymous.tools["web_search"].usd_per_call == pytest.approx(0.001)


def test_what_an_anonymous_connection_ignores_is_said() -> None:
    (notice,) = options_of(mode="advanced", max_results=3).notices()
    assert "--mode" in notice
    assert "--max-results" in notice
    assert "PARALLEL_API_KEY" in notice
    assert Options().notices() == ()


def test_max_chars_is_kept_by_us_where_we_write_the_result() -> None:
    assert options_of(max_chars=1000, backend="agent-sdk").notices() == ()
    assert options_of(max_chars=1000, backend="connector").notices() != ()


def test_an_unknown_server_lists_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"'gogle'.*parallel-search"):
        options_of(server="gogle").servers()


def test_a_server_that_needs_a_key_names_its_variable() -> None:
    with pytest.raises(ConfigurationError, match="PARALLEL_API_KEY"):
        options_of(server="advanced").servers()
    assert named(options_of(server="advanced", parallel_api_key=PARALLEL).servers()) == [
        "parallel-search-advanced"
    ]


def test_a_second_provider_is_one_name_away() -> None:
    (server,) = options_of(server="exa").servers()
    assert server.tools
    assert {notes.role for notes in server.tools.values()} == {"search", "fetch"}


def test_a_file_of_one_s_own_replaces_the_default_servers_and_inherits_notes_by_name() -> None:
    file = servers_file(
        {
            "parallel-search": {"type": "http", "url": "http://127.0.0.1:1/mcp"},
            "mine": {"command": "python", "args": ["-m", "server"], "env": {"A": "1"}},
        }
    )
    twin, mine = options_of(mcp_config=file).servers()
    assert twin.tools["web_search"].role == "search"
    assert (mine.type, mine.command, mine.args, mine.tools) == ("stdio", "python", ("-m", "server"), {})
    assert named(options_of(mcp_config=file, server="exa").servers()) == ["exa"]


def test_variables_are_expanded_with_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "t-123")
    file = servers_file(
        {
            "mine": {
                "url": "https://${HOST:-search.example}/mcp",
                "headers": {"Authorization": "Bearer ${TOKEN}", "X-Team": "${TEAM:-none}"},
            }
        }
    )
    (server,) = options_of(mcp_config=file).servers()
    assert server.url == "https://search.example/mcp"
    assert server.authorization_token is not None
    assert server.authorization_token.get_secret_value() == "t-123"
    assert {name: value.get_secret_value() for name, value in server.headers.items()} == {"X-Team": "none"}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("{", "line 1, column 2"),
        ("[]", "the file"),
        ("{}", "mcpServers"),
        ('{"mcpServers": {"a": {}}}', "mcpServers.a"),
        ('{"mcpServers": {"a": {"url": 3}}}', "mcpServers.a.url"),
        ('{"mcpServers": {"a": {"url": "ftp://x"}}}', "mcpServers.a.url"),
        ('{"mcpServers": {"a": {"type": "sse", "url": "https://x.example"}}}', "mcpServers.a.type"),
        ('{"mcpServers": {"a": {"type": "stdio", "url": "https://x.example"}}}', "mcpServers.a"),
        (
            '{"mcpServers": {"a": {"url": "https://x.example", "headers": {"k": 1}}}}',
            "mcpServers.a.headers.k",
        ),
        ('{"mcpServers": {"a b": {"url": "https://x.example"}}}', "mcpServers.a b"),
        (
            '{"mcpServers": {"a": {"url": "https://x.example", "notes": {"tools": {"t": {"role": "x"}}}}}}',
            "mcpServers.a.notes.tools.t.role",
        ),
        ('{"mcpServers": {"a": {"url": "https://x.example", "headers": {"k": "${NOPE}"}}}}', "NOPE"),
    ],
)
def test_a_broken_servers_file_is_named_with_its_field(text: str, where: str) -> None:
    """A broken `servers.json`: file and field named, exit 2."""
    Path("broken.json").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"broken\.json") as raised:
        options_of(mcp_config="broken.json").servers()
    assert where in str(raised.value)


def test_an_unreadable_servers_file_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.json"):
        options_of(mcp_config="nowhere.json").servers()
    Path("latin.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match=r"latin\.json"):
        options_of(mcp_config="latin.json").servers()


def test_secrets_hold_every_value_that_must_not_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "t-1234567890")
    file = servers_file(
        {
            "a": {
                "url": "https://a.example",
                "headers": {"Authorization": "Bearer ${TOKEN}", "x-k": "header-k"},
            },
            "b": {"command": "x", "env": {"PASSWORD": "env-secret"}},
        }
    )
    options = options_of(mcp_config=file, anthropic_api_key=KEY, parallel_api_key=PARALLEL)
    assert set(options.secrets()) == {KEY, PARALLEL, "t-1234567890", "header-k", "env-secret"}


# --- which backend


LOOPBACK = {"url": "http://127.0.0.1:9/mcp"}
PUBLIC = {"url": "https://search.example/mcp"}


@pytest.mark.parametrize(
    ("entry", "base_url", "offline", "chosen"),
    [
        (PUBLIC, "https://api.anthropic.com", False, "connector"),
        (PUBLIC, "https://api.anthropic.com/", False, "connector"),
        (PUBLIC, "https://proxy.example", False, "agent-sdk"),
        (LOOPBACK, "https://api.anthropic.com", False, "agent-sdk"),
        (LOOPBACK, "http://127.0.0.1:1", True, "connector"),
        (LOOPBACK, "http://127.0.0.1:1", False, "agent-sdk"),
        ({"command": "x"}, "https://api.anthropic.com", False, "agent-sdk"),
        ({"command": "x"}, "http://127.0.0.1:1", True, "agent-sdk"),
        ({"url": "http://search.example/mcp"}, "https://api.anthropic.com", False, "agent-sdk"),
        ({"url": "https://10.0.0.3/mcp"}, "https://api.anthropic.com", False, "agent-sdk"),
        ({"url": "https://intranet/mcp"}, "https://api.anthropic.com", False, "agent-sdk"),
        (PUBLIC | {"headers": {"x-team": "a"}}, "https://api.anthropic.com", False, "agent-sdk"),
        (
            PUBLIC | {"headers": {"Authorization": "Bearer a"}},
            "https://api.anthropic.com",
            False,
            "connector",
        ),
    ],
)
def test_auto_takes_the_connector_only_where_it_can_reach_every_server(
    entry: dict[str, Any], base_url: str, offline: bool, chosen: str
) -> None:
    """The connector where the base URL is Anthropic's (or offline) and all servers are public https."""
    options = options_of(
        mcp_config=servers_file({"mine": entry}), anthropic_base_url=base_url, offline=offline
    )
    name, reason = options.choose_backend()
    assert name == chosen
    assert reason


@pytest.mark.parametrize("entry", [LOOPBACK, {"command": "x"}, {"url": "http://search.example/mcp"}])
def test_a_server_the_connector_cannot_reach_is_named_with_the_other_backend(entry: dict[str, Any]) -> None:
    options = options_of(mcp_config=servers_file({"mine": entry}), backend="connector")
    with pytest.raises(ConfigurationError, match=r"mine.*agent-sdk"):
        options.choose_backend()


def test_the_connector_may_send_loopback_addresses_to_a_loopback_service() -> None:
    options = options_of(
        mcp_config=servers_file({"mine": LOOPBACK}),
        backend="connector",
        anthropic_base_url="http://localhost:8000",
    )
    assert options.choose_backend()[0] == "connector"


# --- offline, and going on


def test_offline_no_address_and_no_key_of_the_user_is_left() -> None:
    options = options_of(offline=True, anthropic_api_key=KEY, parallel_api_key=PARALLEL).with_stand_ins(
        "http://127.0.0.1:1",
        {"parallel-search": "http://127.0.0.1:2/mcp", "parallel-search-advanced": "http://127.0.0.1:2/mcp"},
    )
    assert all((server.url or "").startswith("http://127.0.0.1:2/mcp?mode=") for server in options.servers())
    assert set(options.secrets()) == {"offline"}
    assert options.anthropic_base_url == "http://127.0.0.1:1"


def test_offline_a_server_without_a_stand_in_is_refused() -> None:
    """Nothing leaves the machine with --offline."""
    options = options_of(mcp_config=servers_file({"mine": PUBLIC}), offline=True)
    with pytest.raises(UsageError, match="mine"):
        options.with_stand_ins("http://127.0.0.1:1", {"parallel-search": "http://127.0.0.1:2/mcp"})


def test_a_resumed_run_keeps_what_was_not_given_anew() -> None:
    started = RunStarted(
        question="q",
        backend="agent-sdk",
        backend_reason="as asked",
        model="claude-haiku-5-5",
        limits=Limits(max_usd=0.1, max_steps=5),
        servers=("exa",),
        versions={},
        offline=True,
        base_url="http://127.0.0.1:1",
    )
    options = parse("--max-usd", "1").like(started)
    assert (options.max_usd, options.max_steps, options.model) == (1, 5, "claude-haiku-5-5")
    assert (options.backend, options.server, options.offline) == ("agent-sdk", ("exa",), True)


def test_folders_are_the_user_s_own_unless_named(nothing_from_outside: Path) -> None:
    assert Options().runs_folder.is_relative_to(nothing_from_outside)
    assert options_of(runs_dir="here").runs_folder == Path.cwd() / "here"
    assert options_of(runs_dir="~/there").runs_folder == nothing_from_outside / "there"
    assert options_of(runs_dir="here").state_folder == Options().state_folder


def test_every_option_has_a_help_text() -> None:
    """The docstring under a field is its help and the manual."""
    for command in (command for group in cli.COMMANDS.values() for command in group.values()):
        for name, field in command.model_fields.items():
            assert field.description, f"{command.__name__}.{name}"
            assert "%" not in field.description


def test_a_vanished_current_directory_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    if not os.path.exists("."):  # noqa: PTH110
        assert isinstance(Options(), Settings)
