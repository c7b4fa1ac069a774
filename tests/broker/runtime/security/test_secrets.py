"""Secret configs and credentials are not in logs, described configs or process lists."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kstore.protocol.security.scram import AlterUserScramCredentialsResponse
from tests.broker.harness.wire import Wire
from tests.broker.runtime.security.sasl_harness import RawClient
from tests.conformance.broker_process import free_port
from tests.conformance.kstore_broker import ROOT, KstoreBroker
from tests.plain_messages import Ask

SECRET = "s3cr3t"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECRETS = {
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{MODULE} required username="u" password="{SECRET}-1" user_eve="{SECRET}-2";'
    ),
    "sasl.jaas.config": f'{MODULE} required username="u" password="{SECRET}-3";',
    "ssl.keystore.password": f"{SECRET}-4",
    "listener.name.sasl_plaintext.ssl.key.password": f"{SECRET}-5",
}
"""Settings under Kafka's names, some with a listener's prefix."""
UNKNOWN = {"my.own.password": f"{SECRET}-6"}
"""An unknown setting: files may contain some."""
BROKER, LOGGER = 4, 8


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KstoreBroker]:
    """A broker with secrets in its command line."""
    found = KstoreBroker(tmp_path_factory.mktemp("secrets"))
    found.may_be_forked = False
    listeners = f"PLAINTEXT://{found.bootstrap},SASL_PLAINTEXT://{found.host}:{free_port()}"
    found.overrides |= SECRETS | {
        "listeners": listeners,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "node.id": "1",
    }
    with found:
        yield found


@pytest.fixture
def admin(broker: KstoreBroker) -> Iterator[Wire]:
    with Wire(broker) as admin:
        yield admin


def test_the_list_of_processes_shows_no_secret(broker: KstoreBroker) -> None:
    line = Path(f"/proc/{broker.pid}/cmdline").read_bytes()
    assert b"listeners=PLAINTEXT://" in line
    assert b"ssl.keystore.password=****" in line
    assert SECRET.encode() not in line


def test_no_file_of_the_broker_holds_a_secret(broker: KstoreBroker) -> None:
    files = [path for path in broker.folder.rglob("*") if path.is_file()]
    assert broker.log_dir / ".lock" in files
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def test_what_is_told_of_settings_holds_no_secret(admin: Wire) -> None:
    for name in ("1", ""):
        asked = Ask.DescribeConfigs(
            resources=[{"resource_type": BROKER, "resource_name": name}],
            include_synonyms=True,
            include_documentation=True,
        )
        answer: Any = admin.call(asked, 4)
        assert SECRET not in repr(answer)
        if name:
            told = {row.name: row for row in answer.results[0].configs}
            assert told.keys() >= SECRETS.keys()
            assert all(told[secret].value is None for secret in SECRETS)
            assert all(told[secret].is_sensitive for secret in SECRETS)


def test_the_printed_settings_hold_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("\n".join(f"{name}={value}" for name, value in (SECRETS | UNKNOWN).items()))
    command = [sys.executable, "-m", "kstore", "serve", str(file), "--config-print"]
    for flags in ([], ["--json"]):
        done = subprocess.run(
            [*command, *flags], check=True, cwd=ROOT, capture_output=True, text=True
        )
        assert "[hidden]" in done.stdout
        assert SECRET not in done.stdout + done.stderr


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize(
    "wrong",
    [
        {"sasl.jaas.config": f"{SECRET} no module"},
        {"ssl.keystore.type": "PEM", "ssl.keystore.key": f"{SECRET} no key"},
        {"ssl.keystore.location": "/absent", "ssl.keystore.password": SECRET},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_broker_that_does_not_start_for_a_wrong_secret_does_not_print_it(
    tmp_path: Path, wrong: dict[str, str]
) -> None:
    settings = {
        "listeners": f"SASL_SSL://127.0.0.1:{free_port()}",
        "sasl.enabled.mechanisms": "PLAIN",
        "log.dirs": str(tmp_path / "logs"),
    } | wrong
    flags = [f"--override={name}={value}" for name, value in settings.items()]
    done = subprocess.run(
        [sys.executable, "-m", "kstore", "serve", *flags],
        check=False, cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode != 0
    assert SECRET not in done.stdout + done.stderr


def test_the_log_holds_no_secret_even_where_everything_is_logged(
    broker: KstoreBroker, admin: Wire
) -> None:
    assert admin.configure(LOGGER, "1", root="DEBUG").error_code == 0
    refused = admin.configure(BROKER, "1", ssl_keystore_password=f"{SECRET}-7")
    assert SECRET not in repr(refused)
    user = {
        "name": "carol", "mechanism": 1, "iterations": 4096, "salt": b"salt" * 4,
        "salted_password": f"{SECRET}-salted-passwords-000000".encode()[:32]}  # fmt: skip
    made: Any = admin.call(Ask.AlterUserScramCredentials(upsertions=[user]), 0)
    assert isinstance(made, AlterUserScramCredentialsResponse)
    assert SECRET not in repr(made)
    for attempt in (f"\0eve\0{SECRET}-2", f"\0eve\0{SECRET}-wrong", f"{SECRET}-no-nul"):
        log_in(broker, attempt)
    assert SECRET not in (broker.folder / broker.OUTPUT).read_text()


def log_in(broker: KstoreBroker, token: str) -> Any:
    """The response to a client that authenticates with these bytes; None: closed."""
    port = broker.overrides["listeners"].rpartition(":")[2]
    with RawClient(f"{broker.host}:{port}") as client:
        client.ask(Ask.SaslHandshake(mechanism="PLAIN"), 1)
        answer = client.ask(Ask.SaslAuthenticate(auth_bytes=token.encode()), 2)
    assert answer is None or SECRET not in (answer.error_message or "")
    return answer
