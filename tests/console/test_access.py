"""Who can log in to the console, and what a user may do there: ACLs, tokens, other sites."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from kstore.acls import Acl, AclOperation, AclResourceType
from kstore.clients import AdminClient, NewTopic
from kstore.console.app import console_app
from kstore.console.cluster.settings import ConsoleSettings, Login
from kstore.testing import Broker
from tests.console.conftest import URL, Visitor


@pytest.fixture
def alice(secured: Broker, password_console: TestClient) -> Iterator[Visitor]:
    """A user who may read only one topic, `hers`; there is another, `others`."""
    sasl = {
        "bootstrap.servers": secured.address, "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN", "sasl.username": "admin", "sasl.password": "admin-secret",
    }  # fmt: skip
    with AdminClient(sasl) as admin:
        if "hers" not in admin.list_topics():
            admin.create_topics([NewTopic("hers", 1), NewTopic("others", 1)])
            admin.create_acls([
                Acl(AclResourceType.TOPIC, "hers", "User:alice", AclOperation.READ)
            ])  # fmt: skip
    log_in(password_console, "alice", "alice-secret")
    yield Visitor(password_console)
    password_console.cookies.clear()


def log_in(client: TestClient, user: str, password: str, status: int = 200) -> str:
    """The page after the login form."""
    answer = client.post("/ui/login", data={"user": user, "password": password})
    assert answer.status_code == status, answer.text
    return answer.text


def test_without_a_login_there_is_the_login_page_alone(password_console: TestClient) -> None:
    for path in ("/", "/ui/topics", "/ui/topics/hers/records", "/ui/nothing"):
        answer = password_console.get(path, follow_redirects=False)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/ui/login")
    answer = password_console.post("/ui/topics", data={"name": "x"}, follow_redirects=False)
    assert answer.headers["location"] == "/ui/login"


def test_a_wrong_password_is_refused_by_the_cluster(password_console: TestClient) -> None:
    page = log_in(password_console, "alice", "wrong", 401)
    assert 'role="alert"' in page
    assert not password_console.cookies


def test_the_cookie_is_for_this_console_alone(password_console: TestClient) -> None:
    answer = password_console.post(
        "/ui/login",
        data={"user": "alice", "password": "alice-secret", "next": "//evil.example/"},
        follow_redirects=False,
    )
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert answer.headers["location"] == "/"
    password_console.cookies.clear()


def test_acls_decide_what_a_user_sees_and_may_do(alice: Visitor) -> None:
    topics = alice.get("/ui/topics")
    assert "/ui/topics/hers" in topics
    assert "others" not in topics
    assert "Create a topic" not in topics
    topic = alice.get("/ui/topics/hers")
    assert "Produce a record" not in topic
    assert "Change this topic" not in topic
    alice.get("/ui/topics/hers/records")
    alice.get("/ui/topics/others", 403)
    assert "CLUSTER_AUTHORIZATION_FAILED" in alice.get("/ui/acls")
    assert "AUTHORIZATION_FAILED" in alice.post("/ui/topics", name="new", partitions="1")
    refused = alice.post("/ui/topics/hers/produce", 400, key_null="1", value="x")
    assert "AUTHORIZATION_FAILED" in refused


def test_an_administrator_manages_acls(password_console: TestClient) -> None:
    log_in(password_console, "admin", "admin-secret")
    visitor = Visitor(password_console)
    rule = {
        "principal": "User:bob", "host": "*", "permission": "ALLOW", "operation": "WRITE",
        "kind": "TOPIC", "pattern": "PREFIXED", "name": "bobs-",
    }  # fmt: skip
    assert "Added: ALLOW User:bob" in visitor.post("/ui/acls", **rule)
    assert "User:bob" in visitor.get("/ui/acls?q=BOBS")
    assert "1 ACL removed" in visitor.post("/ui/acls/delete", **rule)
    assert "0 ACLs" in visitor.get("/ui/acls?q=BOBS")
    visitor.post("/ui/logout")
    assert password_console.get("/", follow_redirects=False).status_code == 303


def test_a_change_needs_the_sessions_token_and_its_own_site(visitor: Visitor) -> None:
    client = visitor.client
    fields = {"name": "forged", "partitions": "1"}
    assert client.post("/ui/topics", data=fields).status_code == 403
    for guess in ("guess", "gu\xe9\u2026"):
        assert client.post("/ui/topics", data={**fields, "csrf": guess}).status_code == 403
    found = re.search(r'name="csrf" value="([^"]+)"', visitor.get("/ui/topics"))
    assert found is not None
    whole = {**fields, "csrf": found[1]}
    for header in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert client.post("/ui/topics", data=whole, headers=header).status_code == 403
    assert client.post("/ui/topics", json=whole).status_code == 415
    assert "forged" not in visitor.get("/ui/topics")
    same = {"Origin": URL, "Sec-Fetch-Site": "same-origin"}
    assert client.post("/ui/topics", data=whole, headers=same).status_code == 200


def test_without_logins_only_requests_to_this_machine_are_answered(visitor: Visitor) -> None:
    assert visitor.client.get("/", headers={"Host": "evil.example"}).status_code == 403
    assert visitor.client.get("/", headers={"Host": "127.0.0.1:8080"}).status_code == 200


def test_a_read_only_console_changes_nothing(broker: Broker) -> None:
    settings = ConsoleSettings({"bootstrap.servers": broker.address}, read_only=True)
    with TestClient(console_app(settings), base_url=URL) as client:
        visitor = Visitor(client)
        page = visitor.get("/ui/topics")
        assert "read-only" in page
        assert '<form method="post"' not in page
        answer = client.post("/ui/topics", data={"name": "never", "partitions": "1"})
        assert answer.status_code == 403
        assert "never" not in visitor.get("/ui/topics")


@pytest.mark.slow
def test_a_token_is_asked_for_where_the_cluster_has_no_users(broker: Broker) -> None:
    settings = ConsoleSettings({"bootstrap.servers": broker.address}, token="open sesame")
    assert settings.login is Login.TOKEN
    with TestClient(console_app(settings), base_url="http://console.example") as client:
        assert client.post("/ui/login", data={"password": "guess"}).status_code == 401
        answer = client.post("/ui/login", data={"password": "open sesame"})
        assert answer.status_code == 200
        assert "Brokers" in answer.text
        assert client.get("/ui/topics").status_code == 200
