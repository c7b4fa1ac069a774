"""Random bytes at a SASL listener before authentication. The broker answers no request among them,
keeps running, uses no more memory, and still accepts valid clients.

KSTORE_FUZZ_SEED and KSTORE_FUZZ_CASES ask for another run, or a longer one.
"""

from __future__ import annotations

import os
import random
import socket
import struct
from collections.abc import Iterator

import pytest

from kstore.protocol.registry import encode_request
from kstore.testing import Broker
from tests.beside.programs import memory_mb
from tests.broker.harness.plane_harness import framed
from tests.broker.runtime.security.sasl_harness import (
    PASSWORD,
    RawClient,
    Signer,
    addresses,
    users_of,
)
from tests.plain_messages import Ask

SEED = int(os.environ.get("KSTORE_FUZZ_SEED", "368"))
CASES = int(os.environ.get("KSTORE_FUZZ_CASES", "200"))
MARK = 0x5EC0E7
"""The correlation id of a request that must never be answered."""
MOST_GROWTH_MB = 32


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("fuzz")
    signer = Signer(folder)
    settings = {
        "listeners": "SASL_PLAINTEXT://localhost:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": signer.path.as_uri(),
        "connection.failed.authentication.delay.ms": "0",
        "kstore.authentication.timeout.ms": "5000",
        **users_of("sasl_plaintext", "alice"),
    }
    with Broker(folder / "broker", settings) as broker:
        yield broker


def tokens(dice: random.Random) -> bytes:
    """Random messages that look like those of a mechanism, from a client without a password."""
    nonce = bytes(dice.randrange(33, 127) for _ in range(dice.randrange(20)))
    return dice.choice([
        b"\0alice\0guess", b"alice\0alice\0", b"\0" * dice.randrange(5), b"",
        b"n,,n=alice,r=" + nonce, b"n,a=x,n=a=2Cb,r=" + nonce, b"c=biws,r=" + nonce + b",p=AAAA",
        b"n,,\x01auth=Bearer a.b.c\x01\x01", b"\x01", dice.randbytes(dice.randrange(200)),
        b"\0" + b"a" * dice.randrange(3000) + b"\0b",
    ])  # fmt: skip


def step(dice: random.Random) -> bytes:
    """A frame of an authentication exchange."""
    mechanism = dice.choice(["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI", "", "\n\0", "P"])
    hello = Ask.ApiVersions(client_software_name="x", client_software_version="1")
    asked = Ask.Metadata(topics=[{"name": "t"}])
    return dice.choice([
        encode_request(hello, dice.randrange(5), 1, "x"),
        encode_request(Ask.SaslHandshake(mechanism=mechanism), dice.randrange(2), 2, "x"),
        encode_request(Ask.SaslAuthenticate(auth_bytes=tokens(dice)), dice.randrange(3), 3, "x"),
        encode_request(asked, 12, 4, "x"),
        framed(tokens(dice)),
        framed(struct.pack(">hhi", dice.randrange(-2, 100), dice.randrange(-2, 20), 5)),
    ])  # fmt: skip


def spoiled(data: bytes, dice: random.Random) -> bytes:
    """The same with some bytes flipped, cut or repeated; a size may become any number."""
    spoiled = bytearray(data)
    for _ in range(dice.choice([0, 0, 0, 1, 1, 3, 20])):
        if not spoiled:
            break
        at = dice.randrange(len(spoiled))
        how = dice.randrange(4)
        if how == 0:
            spoiled[at] ^= 1 << dice.randrange(8)
        elif how == 1:
            del spoiled[at : at + dice.randrange(1, 8)]
        elif how == 2:
            spoiled[at:at] = dice.randbytes(dice.randrange(1, 8))
        else:
            spoiled[at : at + 4] = dice.choice([b"\x7f\xff\xff\xff", b"\xff" * 4, b"\0\0\0\0"])
    return bytes(spoiled)


def answers(address: str, sent: bytes, dice: random.Random) -> bytes:
    """Everything that the broker sends until it closes the connection."""
    host, _, port = address.rpartition(":")
    heard = b""
    with socket.create_connection((host, int(port)), timeout=30) as sock:
        try:
            cut = dice.randrange(len(sent) + 1)
            sock.sendall(sent[:cut])
            sock.sendall(sent[cut:])
            if dice.randrange(4):
                sock.shutdown(socket.SHUT_WR)
            else:  # requests that wait for the store are answered too; part of a frame may be left
                sock.settimeout(0.1)
            while more := sock.recv(65536):
                heard += more
        except OSError:
            pass
    return heard


def test_nothing_is_answered_and_nothing_grows(broker: Broker) -> None:
    dice = random.Random(SEED)
    address = addresses(broker)["SASL_PLAINTEXT"]
    assert broker.pid is not None
    before = 0
    for number in range(CASES):
        sent = b"".join(spoiled(step(dice), dice) for _ in range(dice.randrange(1, 6)))
        forbidden = encode_request(Ask.Metadata(topics=[]), 12, MARK, "x")
        heard = answers(address, sent + forbidden, dice)
        assert struct.pack(">i", MARK) not in heard, f"seed {SEED}, case {number}: {sent!r}"
        if number == CASES // 4:
            before = memory_mb(broker.pid, "VmRSS")
    assert memory_mb(broker.pid, "VmRSS") - before < MOST_GROWTH_MB
    assert "Traceback" not in broker.output()
    with RawClient(address) as client:
        client.ask(Ask.SaslHandshake(mechanism="PLAIN"), 1)
        token = f"\0alice\0{PASSWORD}".encode()
        assert client.ask(Ask.SaslAuthenticate(auth_bytes=token), 2).error_code == 0
        assert client.ask(Ask.Metadata(topics=[]), 12) is not None


@pytest.mark.slow
def test_a_declared_size_alone_takes_no_memory(broker: Broker) -> None:
    address = addresses(broker)["SASL_PLAINTEXT"]
    host, _, port = address.rpartition(":")
    assert broker.pid is not None
    before = memory_mb(broker.pid, "VmRSS")
    held = [socket.create_connection((host, int(port)), timeout=30) for _ in range(200)]
    try:
        for sock in held:
            sock.sendall(struct.pack(">i", 500_000) + b"\0\x11\0\1")
        with RawClient(address) as client:
            assert client.ask(Ask.SaslHandshake(mechanism="PLAIN"), 1).error_code == 0
        assert memory_mb(broker.pid, "VmRSS") - before < MOST_GROWTH_MB
    finally:
        for sock in held:
            sock.close()
