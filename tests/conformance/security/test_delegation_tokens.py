"""Delegation tokens compared with a real Kafka 4.3.1: the same story for both, and Java's clients
and Kafka's own tool with kstore's broker.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kstore.protocol.metadata.metadata import MetadataRequest
from kstore.protocol.security.delegation_tokens import DescribeDelegationTokenRequest
from kstore.testing import Broker
from tests.broker.runtime.security.sasl_harness import (
    RawClient,
    addresses,
    listeners,
    plain_login,
)
from tests.broker.runtime.security.token_harness import (
    RefusedError,
    allow,
    create,
    describe,
    expire,
    log_in,
    renew,
    shake_hands,
    token_client,
    token_jaas,
    token_settings,
)
from tests.conformance.kafka_broker import KafkaBroker, run_tool
from tests.conformance.sasl_listeners import add_listeners

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.usefixtures("kafka_jars")]

TOPIC, CLUSTER, DELEGATION_TOKEN, USER = 2, 4, 6, 7
ALL, DESCRIBE, CREATE_TOKENS, DESCRIBE_TOKENS = 2, 8, 13, 14
CREATE, RENEW, TELL = (1, 3), (1, 2), (1, 3)
HOUR_MS = 3_600_000
SETTLED_S = 3.0
CAUGHT_UP_S = 20.0
SETTINGS = token_settings("SASL") | {
    "delegation.token.max.lifetime.ms": str(100 * HOUR_MS),
    "delegation.token.expiry.time.ms": str(10 * HOUR_MS),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = SETTINGS | listeners(PLAINTEXT="PLAINTEXT", SASL="SASL_PLAINTEXT")
    with Broker(tmp_path_factory.mktemp("broker"), settings) as broker:
        yield broker


class Story:
    """What one broker is asked, in order, and what it answers without what differs each time."""

    def __init__(self, plain: str, sasl: str, expected: Sequence[str] = ()) -> None:
        """``expected`` are the results of another broker: a description that differs is requested
        again, until this broker has caught up with its controller.
        """
        self.told: list[str] = []
        self.expected = expected
        self.plain, self.sasl = plain, sasl
        self.users: dict[str, RawClient] = {}
        self.names: dict[bytes, str] = {}
        self.tokens: dict[str, Any] = {}

    def close(self) -> None:
        for client in self.users.values():
            client.__exit__()

    def ask(self, who: str, request: Any, version: int, name: str = "") -> Any:
        """Of a user (on a connection that stays), or of "" without one."""
        if who not in self.users:
            self.users[who] = log_in(self.sasl, who) if who else RawClient(self.plain)
        answer = self.ask_on(self.users[who], who, request, version, name)
        if answer is None:
            self.users.pop(who).__exit__()
        return answer

    def ask_on(self, raw: RawClient, who: str, request: Any, version: int, name: str = "") -> Any:
        answer = raw.ask(request, version)
        if name:
            self.tokens[name] = answer
            self.names[bytes(answer.hmac)] = name
        shown = self.line(who, request, version, name, answer)
        ends = time.monotonic() + CAUGHT_UP_S
        while (
            isinstance(request, DescribeDelegationTokenRequest)
            and answer is not None
            and self.expected
            and shown != self.expected[len(self.told)]
            and time.monotonic() < ends
        ):
            time.sleep(0.5)
            answer = raw.ask(request, version)
            shown = self.line(who, request, version, name, answer)
        self.told.append(shown)
        return answer

    def line(self, who: str, request: Any, version: int, name: str, answer: Any) -> str:
        shown = "closed" if answer is None else self.shown(answer)
        return f"{who} {type(request).__name__} {version} {name}: {shown}"

    def settle(self) -> None:
        """Kafka's brokers follow its controller after a while."""
        time.sleep(SETTLED_S)

    def shown(self, answer: Any) -> str:
        if hasattr(answer, "tokens"):
            rows = sorted(self.row(each) for each in answer.tokens)
            return f"{answer.error_code} {rows}"
        if hasattr(answer, "token_id"):
            return f"{answer.error_code} {self.row(answer)} {answer.throttle_time_ms}"
        if hasattr(answer, "expiry_timestamp_ms"):
            from_now = answer.expiry_timestamp_ms
            if from_now > 0:
                from_now = round((from_now / 1000 - time.time()) / 60)  # minutes
            return f"{answer.error_code} {from_now}"
        return str(getattr(answer, "error_code", type(answer).__name__))

    def row(self, token: Any) -> str:
        given = {name: getattr(token, name) for name in token.SPECS}
        times = {name: value for name, value in given.items() if "timestamp" in name}
        first = next(value for name, value in times.items() if "issue" in name)
        if first > 0:
            given |= {name: round((value - first) / 60_000) for name, value in times.items()}
        given["token_id"] = len(given["token_id"])
        given["hmac"] = self.names.get(bytes(given["hmac"]), len(given["hmac"]))
        renewers = given.get("renewers", ())
        given["renewers"] = sorted(f"{r.principal_type}:{r.principal_name}" for r in renewers)
        given.pop("throttle_time_ms", None)
        # After several changes Kafka's broker may show an older end for a while.
        given.pop("expiry_timestamp", None)
        given.pop("error_code", None)
        return repr(sorted(given.items()))

    def login(self, name: str, mechanism: str = "SCRAM-SHA-256", hmac: bytes | None = None) -> None:
        token = self.tokens[name]
        secret = bytes(token.hmac) if hmac is None else hmac
        with RawClient(self.sasl) as raw:
            try:
                held = shake_hands(raw, token_client(token.token_id, secret, mechanism))
            except RefusedError as refusal:
                self.told.append(f"{name} {mechanism}: refused {refusal}")
                return
            self.told.append(f"{name} {mechanism}: is in, with an end: {held > 0}")
            self.ask_on(raw, name, MetadataRequest(topics=[]), 12)
            for request, version in (
                (create(), 3), (renew(secret), 2), (expire(secret), 2), (describe(), 3),
            ):  # fmt: skip
                self.ask_on(raw, name, request, version)


def tell(story: Story) -> list[str]:
    """All of it."""
    ask = story.ask
    for version in CREATE:
        ask("", create(), version)
        ask("alice", create("x", kind="Group"), version)
    for version in RENEW:
        ask("", renew(b"x"), version)
        ask("alice", renew(b"x"), version)
        ask("", expire(b"x"), version)
        ask("alice", expire(b"x"), version)
    for version in TELL:
        ask("", describe(), version)
        ask("alice", describe(), version)
    ask("alice", create(), 1, "first")
    ask("alice", create("bob", "bob"), 3, "bobs")
    ask("alice", create(life_ms=5 * HOUR_MS), 3, "short")
    ask("alice", create(life_ms=2**63 - 1), 3, "long")
    ask("alice", create(owner="alice"), 3, "own")
    ask("alice", create(owner="carol"), 3)
    ask("alice", create("x", owner="carol", kind="Group"), 3)
    ask("", allow("alice", USER, "User:carol", CREATE_TOKENS), 3)
    story.settle()
    ask("alice", create("bob", owner="carol"), 3, "carols")
    ask("alice", create("x", owner="carol", kind="Group"), 3)
    story.settle()
    for who in ("alice", "bob", "carol"):
        for version in TELL:
            ask(who, describe(), version)
        ask(who, describe(every=False), 3)
        ask(who, describe("alice"), 3)
        ask(who, describe("bob", "carol"), 3)
    secret = {name: bytes(token.hmac) for name, token in story.tokens.items()}
    for name in ("first", "bobs", "short", "carols"):
        for who in ("alice", "bob", "carol"):
            ask(who, renew(secret[name]), 2)
            ask(who, renew(secret[name], HOUR_MS), 1)
            ask(who, renew(secret[name], 2**63 - 1), 2)
            ask(who, expire(secret[name], 2 * HOUR_MS), 2)
            ask(who, expire(secret[name], 2**62), 2)
    ask("", allow("bob", DELEGATION_TOKEN, story.tokens["first"].token_id, DESCRIBE), 3)
    ask("", allow("bob", USER, "User:carol", DESCRIBE_TOKENS), 3)
    story.settle()
    ask("bob", describe(), 3)
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        for name in ("first", "carols"):
            story.login(name, mechanism)
    story.login("first", hmac=b"wrong")
    ask("carol", expire(secret["first"]), 2)
    ask("alice", expire(secret["first"]), 2)
    story.settle()
    ask("alice", expire(secret["first"]), 2)
    ask("alice", renew(secret["first"]), 2)
    story.login("first")
    ask("alice", expire(secret["long"], 0), 2)
    story.settle()
    ask("alice", expire(secret["long"], 0), 2)
    ask("carol", expire(secret["long"], 0), 2)
    ask("alice", renew(secret["long"]), 2)
    ask("carol", renew(secret["long"]), 2)
    ask("alice", describe(), 3)
    ask("alice", expire(secret["long"]), 2)
    story.settle()
    ask("alice", describe(), 3)
    return story.told


@pytest.mark.thorough
def test_tokens_are_kafkas(broker: Broker, tmp_path: Path) -> None:
    mine = addresses(broker)
    kafka = KafkaBroker(tmp_path, overrides=SETTINGS)
    theirs = add_listeners(kafka, {"SASL": "SASL_PLAINTEXT"})["SASL"]
    with kafka:
        told: list[list[str]] = []
        for plain, sasl in ((mine["PLAINTEXT"], mine["SASL"]), (kafka.bootstrap, theirs)):
            story = Story(plain, sasl, told[0] if told else ())
            told.append(tell(story))
            story.close()
    different = [pair for pair in zip(*told, strict=True) if pair[0] != pair[1]]
    assert different == []


# ---- Java's clients ----


def properties(folder: Path, name: str, *lines: str) -> str:
    """A file of client settings."""
    file = folder / f"{name}.properties"
    file.write_text("\n".join(["security.protocol=SASL_PLAINTEXT", *lines]))
    return str(file)


def tool(address: str, settings: str, *args: str) -> str:
    """What kafka-delegation-tokens prints."""
    server = ("--bootstrap-server", address, "--command-config", settings)
    return run_tool("kafka-delegation-tokens", [*args, *server]).stdout


def test_kafkas_tool_makes_a_token_and_java_logs_in_with_it(broker: Broker, tmp_path: Path) -> None:
    where = addresses(broker)["SASL"]
    alice = properties(
        tmp_path, "alice", "sasl.mechanism=PLAIN", f"sasl.jaas.config={plain_login('alice')}"
    )
    made = tool(where, alice, "--create", "--max-life-time-period", "-1",
                "--renewer-principal", "User:bob")  # fmt: skip
    row = next(line for line in made.splitlines() if "User:alice" in line).split()
    token_id, hmac = row[0], row[1]
    assert "User:bob" in row[4]
    with log_in(where, "alice") as client:
        told = client.ask(describe(), 3)
        [known] = [each for each in told.tokens if each.token_id == token_id]
        assert base64.b64encode(known.hmac).decode() == hmac
    with RawClient(addresses(broker)["PLAINTEXT"]) as anybody:
        anybody.ask(allow("alice", TOPIC, "*", ALL), 3)
        anybody.ask(allow("alice", CLUSTER, "kafka-cluster", ALL), 3)
    assert "Completed renew" in tool(
        where, alice, "--renew", "--hmac", hmac, "--renew-time-period", "-1"
    )
    assert token_id in tool(where, alice, "--describe", "--owner-principal", "User:alice")
    jaas = token_jaas(token_id, bytes(known.hmac))
    bearer = properties(
        tmp_path, "bearer", "sasl.mechanism=SCRAM-SHA-512", f"sasl.jaas.config={jaas}"
    )
    seen = run_tool("kafka-producer-perf-test", [
        "--topic", "java-by-token", "--num-records", "100", "--record-size", "10",
        "--throughput", "-1", "--command-config", bearer, "--bootstrap-server", where,
    ]).stdout  # fmt: skip
    assert "100 records sent" in seen
    assert "Completed expire" in tool(
        where, alice, "--expire", "--hmac", hmac, "--expiry-time-period", "-1"
    )
    assert token_id not in tool(where, alice, "--describe")
