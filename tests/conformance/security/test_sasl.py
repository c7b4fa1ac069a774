"""SASL compared with a real Kafka 4.3.1: what clients see on the wire in and out of turn, and
Java's own clients with every mechanism, also against TLS with certificates.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import admin

from kstore.protocol.metadata.api_versions import ApiVersionsRequest
from kstore.protocol.metadata.metadata import MetadataRequest
from kstore.protocol.registry import encode_request
from kstore.protocol.security.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kstore.testing import Broker
from tests.beside.librdkafka import SHA_256, SHA_512, alter_scram, scram_user
from tests.broker.runtime.security.sasl_harness import (
    PASSWORD,
    RawClient,
    Signer,
    addresses,
    listeners,
    plain_users,
    users_of,
)
from tests.broker.runtime.security.tls_harness import Authority
from tests.conformance.kafka_broker import KafkaBroker, run_tool
from tests.conformance.sasl_listeners import add_listeners

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.usefixtures("kafka_jars")]

MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
LISTENERS = ("OPEN", "SHORT")


def sasl_settings() -> dict[str, str]:
    """Those of both brokers."""
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.short.connections.max.reauth.ms": "3000",
    }
    for name in LISTENERS:
        settings |= users_of(name, "alice", "bob")
    return settings


def add_scram_users(address: str) -> None:
    client = admin.AdminClient({"bootstrap.servers": address})
    alter_scram(client, *(scram_user("alice", PASSWORD, each) for each in (SHA_256, SHA_512)))


@pytest.fixture(scope="module")
def broker(
    authority: Authority, signer: Signer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    settings = sasl_settings() | authority.broker_settings() | {
        **listeners(PLAINTEXT="PLAINTEXT", OPEN="SASL_PLAINTEXT", SHORT="SASL_PLAINTEXT",
                    SAFE="SASL_SSL", CERT="SSL"),
        "listener.name.safe.sasl.enabled.mechanisms": ",".join(MODULES),
        "listener.name.safe.plain.sasl.jaas.config": plain_users("alice"),
        "sasl.oauthbearer.jwks.endpoint.url": signer.path.as_uri(),
        "listener.name.safe.connections.max.reauth.ms": "2000",
        "listener.name.cert.ssl.client.auth": "required",
    }  # fmt: skip
    with Broker(tmp_path_factory.mktemp("broker"), settings) as broker:
        add_scram_users(addresses(broker)["PLAINTEXT"])
        yield broker


# ---- on the wire ----

GOOD = f"\0alice\0{PASSWORD}".encode()
VERSIONS = ApiVersionsRequest(client_software_name="x", client_software_version="1")
NAMELESS = ApiVersionsRequest(client_software_name="", client_software_version="")
METADATA = MetadataRequest(topics=[])
FIRST = b"n,,n=alice,r=abc"


def plain(version: int = 1) -> tuple[Any, int]:
    return SaslHandshakeRequest(mechanism="PLAIN"), version


def scram(version: int = 1) -> tuple[Any, int]:
    return SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), version


def other(version: int = 1) -> tuple[Any, int]:
    return SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), version


def token(data: bytes, version: int = 2) -> tuple[Any, int]:
    return SaslAuthenticateRequest(auth_bytes=data), version


def bent(request: Any, version: int) -> bytes:
    """A request that says another version."""
    frame = bytearray(encode_request(request, 1, 7, "me"))
    frame[6:8] = version.to_bytes(2)
    return bytes(frame)


def sized(data: bytes) -> bytes:
    return len(data).to_bytes(4) + data


Said = tuple[Any, int] | bytes | float
"""A request in a version, or bytes, or for how long nothing is said."""
METADATA_12, VERSIONS_3 = (METADATA, 12), (VERSIONS, 3)
IN = (plain(), token(GOOD))
STORIES: dict[str, tuple[str, tuple[Said, ...]]] = {
    "all": ("OPEN", (VERSIONS_3, *IN, METADATA_12, plain(), token(GOOD))),
    "bare tokens": ("OPEN", (plain(0), sized(GOOD), METADATA_12)),
    "bare tokens, wrong": ("OPEN", (plain(0), sized(b"\0alice\0x"))),
    "version 0": ("OPEN", (plain(), token(GOOD, 0))),
    "ApiVersions twice": ("OPEN", (VERSIONS_3, VERSIONS_3)),
    "ApiVersions of the future": ("OPEN", (bent(VERSIONS, 99), VERSIONS_3, plain())),
    "ApiVersions without a name": ("OPEN", ((NAMELESS, 3), VERSIONS_3, plain())),
    "Metadata first": ("OPEN", (METADATA_12,)),
    "ApiVersions late": ("OPEN", (plain(), VERSIONS_3)),
    "SaslHandshake twice": ("OPEN", (plain(), plain())),
    "SaslAuthenticate first": ("OPEN", (token(GOOD),)),
    "a mechanism that is not enabled": ("OPEN", (other(),)),
    "the same, in version 0": ("OPEN", (other(0),)),
    "no request": ("OPEN", (sized(b"\x60hello\0\0\0\0\0\0"),)),
    "one byte": ("OPEN", (sized(b"\0"),)),
    "SaslHandshake 9": ("OPEN", (bent(plain()[0], 9),)),
    "SaslAuthenticate 9": ("OPEN", (plain(), bent(token(GOOD)[0], 9))),
    "lifetime": ("SHORT", (VERSIONS_3, *IN)),
    "renewed": ("SHORT", (*IN, *IN, METADATA_12, plain())),
    "renewed as another": ("SHORT", (*IN, plain(), token(f"\0bob\0{PASSWORD}".encode()))),
    "renewed, wrong": ("SHORT", (*IN, plain(), token(b"\0alice\0x"))),
    "renewed by another mechanism": ("SHORT", (*IN, scram(), token(FIRST))),
    "over": ("SHORT", (*IN, 3.2, METADATA_12)),
    "over, and renewed": ("SHORT", (*IN, 3.2, *IN, METADATA_12)),
}
STORIES |= {
    f"PLAIN {data!r}": ("OPEN", (plain(), token(data)))
    for data in (
        b"\0alice\0no", b"\0nobody\0no", b"alice\0no", b"\0a\0b\0c", b"\0\0no", b"\0alice\0",
        b"bob\0alice\0" + PASSWORD.encode(), b"alice\0alice\0" + PASSWORD.encode(), b"",
        b"\0\xff\xfe\0x", b"\0nobody\0",
    )
}  # fmt: skip
STORIES |= {
    f"SCRAM {data!r}": ("OPEN", (scram(), token(data)))
    for data in (
        b"n,,n=nobody,r=abc", b"xyz", b"", b"n,a=bob,n=alice,r=abc", b"p=tls-unique,,n=alice,r=a",
        b"y,,n=alice,r=abc", b"n,,n=a=b,r=abc",
    )
}  # fmt: skip


def answers_to(address: str, story: tuple[Said, ...]) -> list[str]:
    """The answers up to the end of the connection."""
    found: list[str] = []
    with RawClient(address) as client:
        for said in story:
            if isinstance(said, float):
                time.sleep(said)
                continue
            if isinstance(said, bytes):
                client.sock.sendall(said)
                answer: Any = client.frame()
                found.append("closed" if answer is None else repr(answer[:6]))
            else:
                answer = client.ask(*said)
                code = getattr(answer, "error_code", 0)
                short = said[0] in (VERSIONS, NAMELESS, METADATA)
                shown = f"{type(answer).__name__} {code}" if short else repr(answer)
                found.append("closed" if answer is None else shown)
            if answer is None:
                break
    return found


@pytest.mark.thorough
def test_the_wire_is_kafkas(broker: Broker, tmp_path: Path) -> None:
    mine = addresses(broker)
    kafka = KafkaBroker(tmp_path, overrides=sasl_settings())
    theirs = add_listeners(kafka, dict.fromkeys(LISTENERS, "SASL_PLAINTEXT"))
    with kafka, ThreadPoolExecutor(16) as pool:
        add_scram_users(kafka.bootstrap)
        asked = [
            (
                name,
                pool.submit(answers_to, theirs[on], story),
                pool.submit(answers_to, mine[on], story),
            )
            for name, (on, story) in STORIES.items()
        ]
        different = {
            name: (theirs.result(), ours.result())
            for name, theirs, ours in asked
            if theirs.result() != ours.result()
        }
    assert different == {}


# ---- Java's clients ----


def java_settings(
    folder: Path, mechanism: str, signer: Signer, authority: Authority, password: str = PASSWORD
) -> Path:
    """A file of client settings for the listener SAFE."""
    options = f'username="alice" password="{password}"'
    lines = [
        "security.protocol=SASL_SSL", f"sasl.mechanism={mechanism}", "ssl.truststore.type=PEM",
        f"ssl.truststore.location={authority.ca_path}",
    ]  # fmt: skip
    if mechanism == "OAUTHBEARER":
        path = folder / "token"
        path.write_text(signer.token("alice"))
        options = ""
        package = "org.apache.kafka.common.security.oauthbearer"
        lines += [
            f"sasl.oauthbearer.token.endpoint.url={path.as_uri()}",
            f"sasl.login.callback.handler.class={package}.OAuthBearerLoginCallbackHandler",
        ]
    lines.append(f"sasl.jaas.config={MODULES[mechanism]} required {options};")
    file = folder / f"{mechanism}.properties"
    file.write_text("\n".join(lines))
    return file


@pytest.mark.parametrize(
    "mechanism",
    [
        pytest.param(each, marks=() if each == "OAUTHBEARER" else pytest.mark.thorough)
        for each in MODULES
    ],
)
def test_java_clients_by_each_mechanism(
    broker: Broker, signer: Signer, authority: Authority, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, mechanism: str,
) -> None:  # fmt: skip
    """Longer than a session: Java renews it."""
    file = java_settings(tmp_path, mechanism, signer, authority)
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={(tmp_path / 'token').as_uri()}"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", allowed)
    where = addresses(broker)["SAFE"]
    seen = run_tool(
        "kafka-producer-perf-test", ["--topic", f"java-{mechanism}", "--num-records", "300",
        "--record-size", "10", "--throughput", "100", "--command-config", str(file),
        "--bootstrap-server", where],
    ).stdout  # fmt: skip
    assert "300 records sent" in seen


def test_java_hears_that_its_password_is_wrong(
    broker: Broker, signer: Signer, authority: Authority, tmp_path: Path
) -> None:
    file = java_settings(tmp_path, "SCRAM-SHA-512", signer, authority, password="guess")
    where = addresses(broker)["SAFE"]
    done = run_tool(
        "kafka-get-offsets", ["--bootstrap-server", where, "--command-config", str(file)],
        check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "due to invalid credentials with SASL mechanism SCRAM-SHA-512" in done.stderr


def test_java_shows_a_certificate(broker: Broker, authority: Authority, tmp_path: Path) -> None:
    file = tmp_path / "ssl.properties"
    file.write_text("\n".join([
        "security.protocol=SSL", "ssl.truststore.type=PEM", "ssl.keystore.type=PEM",
        f"ssl.truststore.location={authority.ca_path}",
        f"ssl.keystore.location={_pkcs8(authority.folder / 'client.pem', tmp_path)}",
    ]))  # fmt: skip
    seen = run_tool(
        "kafka-broker-api-versions", ["--bootstrap-server", addresses(broker)["CERT"],
        "--command-config", str(file)],
    ).stdout  # fmt: skip
    assert "SaslHandshake(17)" in seen


def _pkcs8(path: Path, folder: Path) -> Path:
    """The same with the key in the form that Java reads."""
    from cryptography.hazmat.primitives import serialization

    text = path.read_bytes()
    key = serialization.load_pem_private_key(text, None)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    found = folder / "client-pkcs8.pem"
    found.write_bytes(pem + text[text.index(b"-----BEGIN CERTIFICATE") :])
    return found
