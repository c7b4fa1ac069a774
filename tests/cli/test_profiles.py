"""Client settings from -b, -X, profiles and the environment: which of them wins, and what is never
shown.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from kstore.cli.app import run
from kstore.cli.client_config import client_config
from kstore.cli.profiles import profiles_path
from kstore.config import ConfigError

PROFILES = """
[profiles.staging]
bootstrap.servers = "staging:9092"
client.id = "me"
linger.ms = 5
fetch.max.bytes = 1000
security.protocol = "SASL_SSL"
sasl.jaas.config = "hunter2"
ssl.key.password = "hunter2"

[profiles.other]
"bootstrap.servers" = "other:9092"
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config folder for the test, with two profiles."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("KSTORE_BOOTSTRAP_SERVER", raising=False)
    monkeypatch.delenv("KSTORE_PROFILE", raising=False)
    file = profiles_path()
    file.parent.mkdir()
    file.write_text(PROFILES)
    file.chmod(0o600)
    return file


def test_the_nearest_setting_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    def servers(*arguments: object) -> object:
        return client_config("admin", *arguments).get("bootstrap.servers")  # type: ignore[arg-type]

    assert servers() is None  # the client's default
    monkeypatch.setenv("KSTORE_PROFILE", "other")
    assert servers() == "other:9092"
    monkeypatch.setenv("KSTORE_BOOTSTRAP_SERVER", "environment:9092")
    assert servers() == "environment:9092"
    assert servers(None, None, "staging") == "staging:9092"
    assert servers(None, ["bootstrap.servers=x:1"], "staging") == "x:1"
    assert servers("b:1", ["bootstrap.servers=x:1"], "staging") == "b:1"


def test_a_profile_serves_all_kinds_of_clients() -> None:
    admin = client_config("admin", profile="staging")
    assert admin["client.id"] == "me"
    assert "linger.ms" not in admin
    assert client_config("producer", profile="staging")["linger.ms"] == 5
    consumer = client_config("consumer", profile="staging")
    assert consumer["fetch.max.bytes"] == 1000
    assert "linger.ms" not in consumer


def test_what_no_client_knows_is_refused(home: Path) -> None:
    home.write_text("[profiles.p]\nlinger.sm = 5\n")
    with pytest.raises(ConfigError, match=r"linger\.sm is not a client setting"):
        client_config("admin", profile="p")


@pytest.mark.parametrize("text", ["profiles = 1", "[profile.p]", "[profiles]\np = 1", "x ="])
def test_a_file_that_is_not_as_it_should_be_is_named(home: Path, text: str) -> None:
    home.write_text(text)
    with pytest.raises(ConfigError, match=r"profiles\.toml"):
        client_config("admin", profile="p")


def test_a_missing_profile_names_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "list", "--profile", "prod"]) == 2
    assert "other, staging" in capsys.readouterr().err


def test_without_a_file_there_are_no_profiles(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.unlink()
    assert run(["profile", "list"]) == 0
    assert str(home) in capsys.readouterr().out
    assert run(["profile", "list", "--json"]) == 0
    assert capsys.readouterr().out == ""


def test_profiles_are_shown_without_secrets(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", "show", "staging"]) == 0
    text = capsys.readouterr().out
    assert "ssl.key.password=[hidden]" in text
    assert "client.id=me" in text
    assert run(["profile", "show", "staging", "--json"]) == 0
    shown = capsys.readouterr().out
    assert json.loads(shown)["settings"]["linger.ms"] == 5
    assert run(["profile", "list"]) == 0
    assert "hunter2" not in text + shown + capsys.readouterr().out
    assert run(["profile", "path"]) == 0
    assert capsys.readouterr().out.strip() == str(home)


@pytest.mark.parametrize("item", ["x", "=1"])
def test_a_setting_is_key_and_value(item: str) -> None:
    with pytest.raises(typer.BadParameter, match="KEY=VALUE"):
        client_config("admin", None, [item])


def test_an_unknown_setting_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "list", "-X", "client.idd=me"]) == 2
    assert "did you mean client.id?" in capsys.readouterr().err


def test_consume_takes_no_group_id_but_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["consume", "t", "-X", "group.id=g"]) == 2
    assert "use --group, not group.id" in capsys.readouterr().err


def test_secrets_may_lie_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OF_THE_TEST", "from the environment")
    (tmp_path / "secret").write_text("from a file\n")
    given = ["sasl.password=${env:OF_THE_TEST}", f"ssl.key.password=${{file:{tmp_path}/secret}}"]
    config = client_config("admin", None, given)
    assert config["sasl.password"] == "from the environment"
    assert config["ssl.key.password"] == "from a file"
    assert capsys.readouterr().err == ""
    for missing in ("sasl.password=${env:NOT_THERE}", "sasl.password=${file:/not/there}"):
        with pytest.raises(ConfigError, match=r"sasl\.password"):
            client_config("admin", None, [missing])


def test_a_secret_that_others_see_is_warned_of(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client_config("admin", None, ["sasl.password=hunter2", "client.id=me"])
    told = capsys.readouterr().err
    assert "sasl.password can be seen by all users" in told
    assert "hunter2" not in told
    home.chmod(0o644)
    client_config("admin", profile="staging")
    told = capsys.readouterr().err
    assert f"chmod 600 {home}" in told
    assert "hunter2" not in told
