"""The console of clusters with TLS and with OAuth tokens, and what it shows of a Streams group."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from kstore.acls import Acl, AclOperation, AclResourceType
from kstore.clients import AdminClient, NewTopic
from kstore.console.app import console_app
from kstore.console.cluster.settings import ConsoleSettings
from kstore.testing import Broker
from tests.broker.runtime.security.sasl_harness import Signer
from tests.broker.runtime.security.tls_harness import Authority
from tests.conformance.sasl_listeners import (
    PASSWORD,
    SCRAM_PASSWORD,
    USER,
    listener_settings,
)
from tests.console.conftest import URL, Visitor

MECHANISMS = ("SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")


class Encrypted:
    """A broker with TLS, every mechanism and ACLs, and how to reach it."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "tls")
        self.signer = Signer(folder)
        settings = {
            "listeners": "SASL_SSL://127.0.0.1:0",
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{USER}",
            **listener_settings("SASL_SSL", self.signer),
            **self.authority.broker_settings(),
        }
        jaas = "listener.name.sasl_ssl.plain.sasl.jaas.config"
        secret = PASSWORD.replace('"', '\\"')
        settings[jaas] = settings[jaas].replace(
            "required", f'required username="{USER}" password="{secret}"'
        )
        self.broker = Broker(folder / "broker", settings)

    @property
    def client(self) -> dict[str, str]:
        """Settings without credentials."""
        return {
            "bootstrap.servers": self.broker.address, "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority.ca_path),
        }  # fmt: skip


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    made = Encrypted(tmp_path_factory.mktemp("encrypted"))
    with made.broker:
        plain = {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}
        with AdminClient({**made.client, **plain}) as admin:
            admin.create_topics([NewTopic("hers", 1), NewTopic("others", 1)])
            admin.create_acls([
                Acl(AclResourceType.TOPIC, "hers", "User:carol", AclOperation.READ)
            ])  # fmt: skip
        yield made


def console(encrypted: Encrypted, *mechanisms: str) -> TestClient:
    settings = ConsoleSettings(encrypted.client, mechanisms=mechanisms)
    return TestClient(console_app(settings), base_url=URL)


def test_a_user_logs_in_to_a_cluster_with_tls(encrypted: Encrypted) -> None:
    with console(encrypted, *MECHANISMS) as client:
        for password, status in ((SCRAM_PASSWORD, 401), (PASSWORD, 200)):
            form = {"user": USER, "password": password}
            assert client.post("/ui/login", data=form).status_code == status
        page = Visitor(client).get("/ui/topics")
        assert "hers" in page
        assert "others" in page


def test_a_broker_whose_certificate_nobody_has_signed_is_not_trusted(encrypted: Encrypted) -> None:
    other = Authority(encrypted.authority.folder / "other").ca_path
    settings = {
        **encrypted.client, "ssl.truststore.location": str(other),
        "default.api.timeout.ms": "3000",
    }  # fmt: skip
    with TestClient(
        console_app(ConsoleSettings(settings, mechanisms=MECHANISMS)), base_url=URL
    ) as client:
        answer = client.post("/ui/login", data={"user": USER, "password": PASSWORD})
        assert answer.status_code == 401
        assert "certificate" in answer.text.lower()


def test_an_oauth_token_is_a_login_with_the_rights_of_whom_it_names(encrypted: Encrypted) -> None:
    with console(encrypted, *MECHANISMS) as client:
        assert "OAuth token" in client.get("/ui/login").text
        form = {"user": "", "password": encrypted.signer.token("carol")}
        page = client.post("/ui/login", data=form)
        assert page.status_code == 200
        assert "User:carol" in page.text
        topics = Visitor(client).get("/ui/topics")
        assert "hers" in topics
        assert "others" not in topics


@pytest.mark.parametrize("token", ["", "nonsense", "a.b.c"])
def test_what_is_no_token_is_refused(encrypted: Encrypted, token: str) -> None:
    with console(encrypted, "OAUTHBEARER") as client:
        assert 'name="user"' not in client.get("/ui/login").text
        answer = client.post("/ui/login", data={"password": token})
        assert answer.status_code == 401
        assert not client.cookies


@pytest.mark.slow
def test_a_token_that_another_has_signed_is_refused(encrypted: Encrypted, tmp_path: Path) -> None:
    with console(encrypted, "OAUTHBEARER") as client:
        answer = client.post("/ui/login", data={"password": Signer(tmp_path).token("carol")})
        assert answer.status_code == 401
