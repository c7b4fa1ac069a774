"""Every command has help with an example, and JSON output where it prints data."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from kstore.cli.app import app, run
from tests.beside.programs import output_of

# Commands that print no data, or use --json for their input.
WITHOUT_JSON = {"completion", "produce", "replicate", "pipeline script"}
# Commands that connect to no broker, or to more than one kind of cluster.
OFFLINE = {
    "backup delete", "backup list", "backup restore", "backup verify",
    "completion", "serve", "log dump", "log verify", "profile list", "profile show", "profile path",
    "pipeline load", "cluster start", "cluster add", "cluster status", "cluster stop",
    "cluster kill", "replicate", "pipeline replicate", "pipeline verify", "pipeline script",
}  # fmt: skip


def commands(group: Any = None, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every command that can be called, by its words."""
    group = get_command(app) if group is None else group
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        words = f"{path} {name}".strip()
        if hasattr(command, "list_commands"):
            yield from commands(command, words)
        else:
            yield words, command


COMMANDS = dict(commands())


def flags(command: Any) -> set[str]:
    return {flag for parameter in command.params for flag in parameter.opts}


@pytest.mark.parametrize("words", sorted(COMMANDS))
def test_a_command_says_what_it_does_and_shows_an_example(words: str) -> None:
    command = COMMANDS[words]
    assert command.help
    example = command.epilog or ""
    assert example.startswith("Example: ")
    assert f"kstore {words}" in example
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{parameter.name} is not explained"


@pytest.mark.parametrize("words", sorted(set(COMMANDS) - WITHOUT_JSON))
def test_what_prints_data_prints_json(words: str) -> None:
    assert "--json" in flags(COMMANDS[words])


@pytest.mark.parametrize("words", sorted(set(COMMANDS) - OFFLINE))
def test_what_asks_a_broker_takes_client_settings_and_profiles(words: str) -> None:
    assert {"--bootstrap-server", "-X", "--profile"} <= flags(COMMANDS[words])


def test_an_example_is_a_command_line_that_is_understood(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each with --help, so that it does nothing. Unknown words would give exit code 2."""
    for words in COMMANDS:
        assert run([*words.split(), "--help"]) == 0, words
    capsys.readouterr()


def test_a_mistyped_command_is_told_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topci"]) == 2
    assert "Did you mean 'topic'" in capsys.readouterr().err
    assert run(["topic", "lst"]) == 2
    assert "Did you mean 'list'" in capsys.readouterr().err


def test_the_list_of_commands_imports_none_of_them() -> None:
    code = (
        "import sys; from kstore.cli.app import run; run(['--help']);"
        "mine = {m for m in sys.modules if m.startswith('kstore.cli.')};"
        "print('imported', *sorted(mine));"
        "heavy = ('kstore.clients', 'kstore.net', 'rich');"
        "assert not any(m.startswith(heavy) for m in sys.modules)"
    )
    imported = output_of([sys.executable, "-c", code]).splitlines()[-1].split()[1:]
    expected = {f"kstore.cli.{name}" for name in ("app", "failure", "lazy_group")}
    assert set(imported) == expected


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("topic --create --topic orders", "use kstore topic create"),
        ("topic create --topic orders", "the topic is an argument"),
        ("consume orders --from-beginning", "from the beginning by default"),
        ("consume orders -n 3", "use --count"),
        ("produce orders --producer.config client.properties", "use --profile"),
        ("group list --command-config client.properties", "use --profile"),
        # click's own words
        ("topic create orders --partition 3", "Possible options: --partitions"),
    ],
)
def test_an_option_of_another_tool_gets_a_hint(
    line: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == 2
    assert hint in capsys.readouterr().err
