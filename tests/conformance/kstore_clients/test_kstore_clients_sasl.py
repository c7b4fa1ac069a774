"""kstore's clients against listeners with SASL, those of a real Kafka and of kstore: every
mechanism, re-authentication (KIP-368), and what is refused.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kstore.cli.app import run
from kstore.cli.profiles import profiles_path
from kstore.clients import AdminClient, Consumer, NewTopic, Producer
from kstore.clients.admin import ScramUpsertion
from kstore.clients.io.connection import BrokerConnection
from kstore.errors import (
    NetworkError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from kstore.types import TopicPartition
from tests.broker.runtime.security.sasl_harness import Signer
from tests.conformance.conftest import KINDS, of_kind
from tests.conformance.sasl_listeners import (
    MECHANISMS,
    SCRAM_PASSWORD,
    SCRAM_USER,
    USER,
    add_listeners,
    client_settings,
    listener_settings,
)

REAUTH_MS = 2000
QUICK = {"default.api.timeout.ms": 3000, "request.timeout.ms": 2000}


class Secured(NamedTuple):
    sasl: str
    plain_only: str
    """The listener that takes PLAIN alone."""
    open: str
    signer: Signer

    def settings(self, mechanism: str, **more: Any) -> dict[str, Any]:
        found = client_settings(mechanism, self.sasl, lambda: self.signer.token(USER))
        return found | {name.replace("_", "."): value for name, value in more.items()}


@pytest.fixture(scope="module", params=KINDS)
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    signer = Signer(folder)
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{signer.path}"
    broker = of_kind(request, folder / "broker", allowed)
    passwords = listener_settings("PASSWORDS", signer)
    broker.overrides = {
        **listener_settings("SASL_PLAINTEXT", signer, REAUTH_MS),
        **{name: passwords[name] for name in passwords if ".passwords.plain" in name},
        "listener.name.passwords.sasl.enabled.mechanisms": "PLAIN",
        "inter.broker.listener.name": "PLAINTEXT",
        "group.initial.rebalance.delay.ms": "0",
    }
    names = {"SASL_PLAINTEXT": "SASL_PLAINTEXT", "PASSWORDS": "SASL_PLAINTEXT"}
    own = add_listeners(broker, names)
    with broker:
        with AdminClient(broker.bootstrap) as admin:
            first = ScramUpsertion(SCRAM_USER, "SCRAM-SHA-256", SCRAM_PASSWORD.encode())
            for credential in (first, replace(first, mechanism="SCRAM-SHA-512")):
                admin.alter_scram_credentials([credential])
        yield Secured(own["SASL_PLAINTEXT"], own["PASSWORDS"], broker.bootstrap, signer)


@pytest.fixture
def topic(secured: Secured) -> str:
    name = f"t-{uuid.uuid4().hex[:12]}"
    with AdminClient(secured.open) as admin:
        admin.create_topics([NewTopic(name, 1, 1)])
    return name


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_client_authenticates(secured: Secured, mechanism: str) -> None:
    topic = f"t-{uuid.uuid4().hex[:12]}"
    with AdminClient(secured.settings(mechanism)) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
    with Producer(secured.settings(mechanism)) as producer:
        sent = [producer.send(topic, b"%d" % number) for number in range(10)]
        producer.flush()
        assert [delivery.result() for delivery in sent] == list(range(10))
    reading = secured.settings(mechanism, group_id=topic, auto_offset_reset="earliest")
    with Consumer(reading) as consumer:
        consumer.subscribe([topic])
        values: list[bytes | None] = []
        while len(values) < 10:
            values += [record.value for record in consumer.poll(30_000)]
    assert values == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_told_at_once(secured: Secured, topic: str, mechanism: str) -> None:
    wrong = secured.settings(mechanism, sasl_password="not-it")
    with AdminClient(wrong | QUICK) as admin, pytest.raises(SaslAuthenticationFailedError) as told:
        admin.list_topics()
    assert "not-it" not in str(told.value)
    assert secured.sasl in str(told.value)


def test_producer_and_consumer_tell_of_a_wrong_password(secured: Secured, topic: str) -> None:
    wrong = secured.settings("PLAIN", sasl_password="not-it")
    producer = Producer(wrong, max_block_ms=20_000)
    with pytest.raises(SaslAuthenticationFailedError):
        producer.send(topic, b"value").result()
    producer.close()
    with Consumer(wrong, group_id="g") as consumer:
        consumer.subscribe([topic])
        with pytest.raises(SaslAuthenticationFailedError):
            consumer.poll(20_000)


def test_a_mechanism_that_the_listener_does_not_take_is_named(secured: Secured) -> None:
    settings = secured.settings("SCRAM-SHA-256") | QUICK
    settings["bootstrap.servers"] = secured.plain_only
    with (
        AdminClient(settings) as admin,
        pytest.raises(UnsupportedSaslMechanismError, match=r"SCRAM-SHA-256, only PLAIN"),
    ):
        admin.list_topics()


def test_a_client_without_sasl_is_told_what_to_look_at(secured: Secured) -> None:
    settings = {"bootstrap.servers": secured.sasl, **QUICK}
    with AdminClient(settings) as admin, pytest.raises(NetworkError, match=r"security.protocol"):
        admin.list_topics()


def test_a_token_that_is_not_valid_is_refused(secured: Secured) -> None:
    settings = secured.settings("OAUTHBEARER")
    settings["oauth_cb"] = lambda: secured.signer.token(USER, aud="others")
    with (
        AdminClient(settings | QUICK) as admin,
        pytest.raises(SaslAuthenticationFailedError),
    ):
        admin.list_topics()


def test_commands_authenticate_by_options_or_by_a_profile(
    secured: Secured,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OF_THE_TEST", SCRAM_PASSWORD)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": SCRAM_USER,
        "sasl.password": "${env:OF_THE_TEST}",
    }
    options = [word for name, value in given.items() for word in ("-X", f"{name}={value}")]
    assert run(["topic", "list", "-b", secured.sasl, *options]) == 0
    assert topic in capsys.readouterr().out
    profiles_path().parent.mkdir()
    lines = [f'"{name}" = "{value}"' for name, value in given.items()]
    profiles_path().write_text("\n".join(["[profiles.secured]", *lines]))
    command = ["topic", "list", "-b", secured.sasl, "--profile", "secured"]
    assert run(command) == 0
    assert topic in capsys.readouterr().out
    assert run([*command, "-X", "sasl.username=nobody"]) != 0
    told = capsys.readouterr()
    assert "SCRAM-SHA-512" in told.err
    assert SCRAM_PASSWORD not in told.err + told.out


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "OAUTHBEARER"])
def test_connections_are_authenticated_again_while_they_are_used(
    secured: Secured, topic: str, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No record is lost or doubled: requests wait for the exchange."""
    authenticated: list[BrokerConnection] = []
    authenticate = BrokerConnection.authenticate

    async def authenticating(self: BrokerConnection, *args: Any) -> None:
        await authenticate(self, *args)
        authenticated.append(self)

    monkeypatch.setattr(BrokerConnection, "authenticate", authenticating)
    sent = 0
    seen: list[bytes | None] = []
    with (
        Producer(secured.settings(mechanism)) as producer,
        Consumer(secured.settings(mechanism, auto_offset_reset="earliest")) as consumer,
    ):
        consumer.assign([TopicPartition(topic, 0)])
        while sum(count > 1 for count in Counter(authenticated).values()) < 2:
            producer.send(topic, b"%d" % sent)
            sent += 1
            seen += [record.value for record in consumer.poll(20)]
        producer.flush()
        while len(seen) < sent:
            seen += [record.value for record in consumer.poll(30_000)]
    assert seen == [b"%d" % number for number in range(sent)]
