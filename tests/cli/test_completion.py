"""The shell's completions, requested as typer's scripts do: names in the cluster, and words."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.beside import forked_brokers
from tests.cli.shell import Shell
from tests.conformance.kstore_broker import KstoreBroker

pytestmark = pytest.mark.slow
IMPORTED = (
    "kstore.cli.app", "kstore.cli.completion", "kstore.cli.cluster_folder",
    "kstore.cli.records.consume", "kstore.clients.admin.client", "kstore.config.broker",
    "pydantic.type_adapter",
)  # fmt: skip
"""What most completions import."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KstoreBroker]:
    """One broker with two topics and a group."""
    with KstoreBroker(tmp_path_factory.mktemp("completion")) as running:
        kstore = Shell(running.bootstrap)
        for topic in ("orders", "payments"):
            kstore("topic", "create", topic, "-p", "2")
        kstore("produce", "orders", stdin=b"a line\n")
        kstore("consume", "orders", "-G", "billing", "-c", "1")
        yield running


@pytest.fixture(scope="module")
def commands() -> Iterator[forked_brokers.Nursery]:
    """Forks commands. Python and the imports of the command line cost more than a completion."""
    nursery = forked_brokers.Nursery(*IMPORTED)
    yield nursery
    nursery.close()


def environment_of(line: str, bootstrap: str | None, folder: Path) -> dict[str, str]:
    """In which bash asks for the completions of the last word of the line."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("KSTORE_")}
    environment |= {
        "_KSTORE_COMPLETE": "complete_bash", "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1), "XDG_CONFIG_HOME": str(folder / "config"),
    }  # fmt: skip
    if bootstrap is not None:
        environment["KSTORE_BOOTSTRAP_SERVER"] = bootstrap
    return environment


def completed(line: str, bootstrap: str | None, folder: Path) -> list[str]:
    """bash's completions of the last word of the line. Nothing else may be written."""
    done = subprocess.run(
        [sys.executable, "-m", "kstore"], env=environment_of(line, bootstrap, folder), cwd=folder,
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split()


def fork_completes(
    commands: forked_brokers.Nursery, line: str, bootstrap: str | None, folder: Path
) -> list[str]:
    """The same, by a forked command."""
    environment = environment_of(line, bootstrap, folder)
    with tempfile.TemporaryFile() as errors:
        forked = commands.start([], environment=environment, stderr=errors.fileno(), folder=folder)
        with forked.stdout:
            output = forked.stdout.read().decode()
        assert forked.wait(60) == 0
        assert errors.seek(0, os.SEEK_END) == 0
    return output.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("kstore con", ["config", "console", "consume"]),
        ("kstore consume ", ["orders", "payments"]),
        ("kstore consume o", ["orders"]),
        ("kstore consume orders --group ", ["billing"]),
        ("kstore consume --value-format ", ["string", "json", "hex", "avro"]),
        ("kstore consume -o ", ["earliest", "latest"]),
        ("kstore consume -X isolation.level=", [
            "isolation.level=read_committed", "isolation.level=read_uncommitted",
        ]),
        ("kstore produce orders -z z", ["zstd"]),
        ("kstore group describe ", ["billing"]),
        ("kstore topic create new -c message.timestamp.t", ["message.timestamp.type="]),
        ("kstore topic alter orders --unset cleanup", ["cleanup.policy"]),
        ("kstore config set topic orders cleanup.policy=", [
            "cleanup.policy=compact", "cleanup.policy=delete",
        ]),
        ("kstore config describe b", ["broker", "broker-logger"]),
        ("kstore config describe topic ", ["orders", "payments"]),
        ("kstore config describe broker ", ["1", "default"]),
        ("kstore elect pay", ["payments:0", "payments:1"]),
        ("kstore serve --c", ["--config-print"]),
        ("kstore serve --override log.dir", ["log.dirs="]),
        ("kstore serve --override compression.type=z", ["compression.type=zstd"]),
        ("kstore completion ", ["bash", "zsh", "fish"]),
        ("kstore doctor --only group", ["group-offsets"]),
        ("kstore top --sort s", ["size"]),
    ],
)  # fmt: skip
def test_names_and_words_are_offered(
    broker: KstoreBroker, commands: forked_brokers.Nursery, tmp_path: Path, line: str,
    offered: list[str],
) -> None:  # fmt: skip
    assert fork_completes(commands, line, broker.bootstrap, tmp_path) == offered


def test_the_cluster_is_the_one_that_stands_before(broker: KstoreBroker, tmp_path: Path) -> None:
    line = f"kstore consume -b {broker.bootstrap} "
    assert completed(line, "localhost:1", tmp_path) == ["orders", "payments"]
    (tmp_path / "config" / "kstore").mkdir(parents=True)
    (tmp_path / "config" / "kstore" / "profiles.toml").write_text(
        f'[profiles.mine]\nbootstrap.servers = "{broker.bootstrap}"\n'
    )
    assert completed("kstore consume --profile ", None, tmp_path) == ["mine"]
    assert completed("kstore consume --profile mine o", None, tmp_path) == ["orders"]


@pytest.mark.parametrize("bootstrap", ["localhost:1", "no port", "${env:NO_SUCH}"])
def test_without_an_answer_nothing_is_offered_and_nothing_said(
    commands: forked_brokers.Nursery, tmp_path: Path, bootstrap: str
) -> None:
    assert fork_completes(commands, "kstore consume ", bootstrap, tmp_path) == []
    assert fork_completes(commands, "kstore group describe ", bootstrap, tmp_path) == []
