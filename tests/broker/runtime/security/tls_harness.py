"""For tests of TLS: a certificate authority with files, and clients with any settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trustme

from tests.beside.librdkafka import read_first, write_all

TIMEOUT_S = 60.0


class Authority:
    """A certificate authority, its certificates as files, and the settings that name them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ca = trustme.CA()
        self.ca_path = folder / "ca.pem"
        self.ca.cert_pem.write_to_path(self.ca_path)
        self.issue(folder / "broker.pem")
        self.issue(folder / "client.pem")

    def issue(self, path: Path) -> None:
        leaf = self.ca.issue_cert("localhost", "127.0.0.1")
        fresh = path.with_suffix(".new")
        leaf.private_key_and_cert_chain_pem.write_to_path(fresh)
        fresh.replace(path)

    def broker_settings(self, **more: str) -> dict[str, str]:
        found = {
            "ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.folder / "broker.pem"),
            "ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca_path),
        }  # fmt: skip
        return found | {f"ssl.{name.replace('_', '.')}": value for name, value in more.items()}

    def client_settings(self, address: str, *, certificate: bool = False) -> dict[str, Any]:
        found = {
            "bootstrap.servers": address, "security.protocol": "ssl",
            "ssl.ca.location": str(self.ca_path), "reconnect.backoff.max.ms": 200,
        }  # fmt: skip
        path = str(self.folder / "client.pem")
        own = {"ssl.certificate.location": path, "ssl.key.location": path}
        return found | (own if certificate else {})


def produce(settings: dict[str, Any], topic: str, values: list[bytes]) -> None:
    servers, large = settings["bootstrap.servers"], {"message.max.bytes": 9_000_000}
    write_all(servers, topic, values, settings=settings | large)


def consume(settings: dict[str, Any], topic: str, count: int) -> list[bytes]:
    servers, large = settings["bootstrap.servers"], {"fetch.message.max.bytes": 9_000_000}
    return [each.value() for each in read_first(servers, topic, count, settings=settings | large)]
