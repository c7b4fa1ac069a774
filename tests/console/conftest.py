"""A broker for the console's tests, with and without logins, and a client in place of a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from kstore.console.app import console_app
from kstore.console.cluster.settings import ConsoleSettings
from kstore.testing import Broker

URL = "http://localhost:8080"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = " ".join(f'user_{name}="{name}-secret"' for name in ("admin", "alice", "nobody"))


class Visitor:
    """A browser without scripts: it follows redirects, and sends forms with the page's token."""

    def __init__(self, client: TestClient) -> None:
        self.client = client

    def get(self, path: str, status: int = 200) -> str:
        """A page's HTML."""
        answer = self.client.get(path)
        assert answer.status_code == status, answer.text
        return answer.text

    def post(self, path: str, status: int = 200, /, **fields: Any) -> str:
        """The page after a form was sent."""
        token = re.search(r'name="csrf" value="([^"]+)"', self.client.get("/ui/quotas").text)
        found = {"csrf": token[1]} if token else {}
        answer = self.client.post(path, data=found | fields)
        assert answer.status_code == status, answer.text
        return answer.text


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker without security."""
    at_once = {"group.streams.initial.rebalance.delay.ms": "0"}
    with Broker(tmp_path_factory.mktemp("console"), at_once) as running:
        yield running


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with users and ACLs; admin is the super user."""
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config":
            f'{JAAS} username="admin" password="admin-secret" {USERS};',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }  # fmt: skip
    with Broker(tmp_path_factory.mktemp("secured"), settings) as running:
        yield running


@pytest.fixture(scope="module")
def visitor(broker: Broker) -> Iterator[Visitor]:
    """The console of the open broker."""
    settings = ConsoleSettings({"bootstrap.servers": broker.address})
    with TestClient(console_app(settings), base_url=URL) as client:
        yield Visitor(client)


@pytest.fixture(scope="module")
def password_console(secured: Broker) -> Iterator[TestClient]:
    """The console of the broker with users, without a login."""
    client = {
        "bootstrap.servers": secured.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
    }
    with TestClient(console_app(ConsoleSettings(client)), base_url=URL) as running:
        yield running
