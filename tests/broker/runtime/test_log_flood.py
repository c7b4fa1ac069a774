"""Strangers cannot fill the disk through the log: it gets few lines, and counts the others."""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path

import pytest

from kstore.testing import Broker
from tests.broker.runtime.security.sasl_harness import addresses
from tests.broker.runtime.security.tls_harness import Authority

CONNECTIONS = 30
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TLS.check_hostname, TLS.verify_mode = False, ssl.CERT_NONE
GARBAGE = {
    "unknown API": b"\x00\x00\x00\x0c\x7f\xff\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00",
    "size": b"\x7f\xff\xff\xff",
    "negative size": b"\xff\xff\xff\xff",
    "short header": b"\x00\x00\x00\x01x",
}


def knock(address: str, sent: bytes, *, tls: bool = False) -> None:
    """Connect, send, and read to the end."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 60) as sock, contextlib.suppress(OSError):
        if tls:
            with TLS.wrap_socket(sock, server_hostname="localhost") as secure:
                secure.sendall(sent)
                assert secure.recv(1) == b""
            return
        sock.sendall(sent)
        while sock.recv(4096):
            pass


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("listener", ["PLAINTEXT", "SASL_PLAINTEXT", "SSL"])
def test_refused_connections_are_told_a_few_times_and_counted(
    tmp_path: Path, listener: str
) -> None:
    settings = {
        "listeners": "PLAINTEXT://localhost:0,SASL_PLAINTEXT://localhost:0,SSL://localhost:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "connection.failed.authentication.delay.ms": "0",
    }
    with Broker(tmp_path, settings | Authority(tmp_path / "ca").broker_settings()) as broker:
        address = addresses(broker)[listener]
        before = len(broker.log_path.read_text().splitlines())
        for sent in GARBAGE.values():
            for _ in range(CONNECTIONS):
                knock(address, sent, tls=listener == "SSL")
        for _ in range(CONNECTIONS):
            knock(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")  # neither TLS nor a size
        broker.shut_down()
    lines = broker.log_path.read_text().splitlines()[before:]
    told = [line for line in lines if "closing the connection" in line]
    rest = [line for line in lines if "more such lines were left out in the last 10 s" in line]
    assert rest, "how many were left out is told at the end, too"
    assert all(f"listener {listener}: " in line for line in rest)
    counted = sum(int(line.split(" more such")[0].split()[-1].replace(",", "")) for line in rest)
    assert len(told) + counted == CONNECTIONS * (len(GARBAGE) + 1)
    windows = len(rest) // len(GARBAGE) + 1
    assert len(told) <= 5 * (len(GARBAGE) + 1) * windows
    assert len(lines) - len(told) - len(rest) < 10, "and nothing else was written of them"
