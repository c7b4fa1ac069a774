"""The broker's HTTP API: what it returns, to whom, and what it refuses."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kstore.acls import Acl, AclOperation, AclResourceType
from kstore.testing import Broker, BrokerError, Cluster
from tests.conformance.kstore_broker import BrokerDiedError, KstoreBroker

TOKEN = "s3cret-of-the-test"
DROP = {"action": "drop", "api": "Fetch"}


class Answer(NamedTuple):
    status: int
    body: Any
    headers: Any


def ask(
    url: str, method: str = "GET", row: Any = None, headers: dict[str, str] | None = None
) -> Answer:
    """One request; its body and the answer's are JSON."""
    data = row if isinstance(row, bytes) else None if row is None else json.dumps(row).encode()
    given = {"Content-Type": "application/json"} if headers is None else headers
    request = urllib.request.Request(url, data, given, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return Answer(answer.status, json.loads(answer.read() or b"null"), answer.headers)
    except urllib.error.HTTPError as refused:
        return Answer(refused.code, json.loads(refused.read()), refused.headers)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("http"), {"broker.rack": "r1"}) as broker:
        yield broker


def test_it_tells_of_health_cluster_and_topics(broker: Broker) -> None:
    assert ask(f"{broker.http_url}/health")[:2] == (200, {"status": "ready", "node_id": 1})
    cluster = ask(f"{broker.http_url}/cluster").body
    host, _, port = broker.address.rpartition(":")
    assert cluster["controller_id"] == 1
    [row] = cluster["brokers"]
    assert (row["id"], row["rack"]) == (1, "r1")
    assert row["endpoints"] == [{"listener": "PLAINTEXT", "host": host, "port": int(port)}]
    assert ask(f"{broker.http_url}/topics").body == {"topics": []}
    from kstore.clients import AdminClient, NewTopic

    with AdminClient(bootstrap_servers=broker.address) as admin:
        admin.create_topics([NewTopic("many", 450), NewTopic("one", 1)])
    many, one = ask(f"{broker.http_url}/topics").body["topics"]
    assert [part["partition"] for part in many["partitions"]] == list(range(450))
    assert one["partitions"] == [
        {"partition": 0, "leader": 1, "leader_epoch": 0, "replicas": [1], "isr": [1]}
    ]


def test_faults_are_taken_told_and_ended(broker: Broker) -> None:
    url = f"{broker.http_url}/faults"
    taken = ask(url, "POST", [DROP, {"action": "error", "code": 6, "topic": "t", "api": 0}])
    assert taken.status == 201
    first, second = taken.body["faults"]
    assert second == {
        "id": first["id"] + 1, "action": "error", "api": "Produce", "topic": "t",
        "code": "NOT_LEADER_OR_FOLLOWER", "struck": 0,
    }  # fmt: skip
    assert ask(f"{url}/{first['id']}", "DELETE").body == {"faults": [first]}
    assert ask(f"{url}/{first['id']}", "DELETE").status == 404
    assert ask(url).body == {"faults": [second]}
    assert ask(url, "DELETE").body == {"faults": [second]}
    assert ask(url).body == {"faults": []}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        ([DROP, 5], "an object"),
        ({"action": "drop", "api": "Vote"}, "must be an API's name"),
        ({"action": "drop", "api": "JoinGroup", "topic": "t"}, "takes no topic"),
    ],
)
def test_a_fault_that_cannot_be_meant_is_refused(broker: Broker, row: Any, words: str) -> None:
    answer = ask(f"{broker.http_url}/faults", "POST", row)
    assert answer.status == 400
    assert words in answer.body["error"]
    assert ask(f"{broker.http_url}/faults").body == {"faults": []}, "all or none"


def test_what_is_not_there_is_told_so(broker: Broker) -> None:
    for path in ("/nothing", "/health/x", "/faults/x", "/faults/0"):
        answer = ask(f"{broker.http_url}{path}", "DELETE")
        assert answer.status in {404, 405}
        assert "error" in answer.body
    answer = ask(f"{broker.http_url}/topics", "POST", {})
    assert (answer.status, answer.headers["Allow"]) == (405, "GET")
    plain = ask(f"{broker.http_url}/faults", "POST", DROP, {"Content-Type": "text/plain"})
    assert plain.status == 415, "a page in a browser can't send anything else unasked"


LOCAL = b"Host: localhost\r\n"
POST = b"POST /faults HTTP/1.1\r\nContent-Type: application/json\r\n" + LOCAL


def exchange(broker: Broker, sent: bytes) -> bytes:
    """All that is answered to some bytes."""
    host, _, port = broker.http_url.removeprefix("http://").rpartition(":")
    got = b""
    with socket.create_connection((host, int(port)), timeout=60) as sock:
        sock.sendall(sent)
        sock.shutdown(socket.SHUT_WR)
        while piece := sock.recv(4096):
            got += piece
    return got


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\r\n\r\n", b"400"),
        (b"GET / HTTP/2.0 x\r\n\r\n", b"400"),
        (POST + b"Content-Length: -1\r\n\r\n", b"400"),
        (POST + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", b"400"),
        (POST + b"Content-Length: 9999999\r\n\r\n", b"413"),
        (POST + b"Content-Length: 400000\r\n\r\n" + b"x" * 400_000, b"413"),
        (POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n[]]", b"400"),
        (POST + b"Content-Length: 2, 3\r\n\r\n[]]", b"400"),
        (POST + b"Content-Length: 9\r\n\r\n[]", b"400"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"411"),
        (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n[]", b"411"),
        (b"GET /health HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\n" + LOCAL + LOCAL + b"\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\n" + LOCAL + b"Host: evil.example\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\n" + LOCAL + b" folded: x\r\n\r\n", b"403"),
        (b"GET / HTTP/1.1\r\nbroken\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\n" + LOCAL + b"X: \0\r\n\r\n", b"400"),
        (b"x" * 40_000, b"431"),
        (b"GET /health HTTP/1.1\r\n" + LOCAL + b"X: " + b"x" * 40_000, b"431"),
    ],
)
def test_garbage_is_refused(broker: Broker, sent: bytes, status: bytes) -> None:
    assert exchange(broker, sent)[9:12] == status
    assert ask(f"{broker.http_url}/health").status == 200


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 40_000, b"[" * 900 + b"]" * 900])
def test_lists_within_lists_are_refused_with_a_sentence(broker: Broker, body: bytes) -> None:
    answer = ask(f"{broker.http_url}/faults", "POST", body)
    assert answer.status == 400
    assert len(answer.body["error"]) < 600
    assert "Traceback" not in broker.log_path.read_text()


def test_a_head_has_no_body(broker: Broker) -> None:
    for path in (b"/health", b"/metrics"):
        head = exchange(broker, b"HEAD " + path + b" HTTP/1.1\r\n" + LOCAL + b"\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert head.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.9:80", 200),
        ("[::1]:1", 200),
        ("evil.example", 403),
        ("[", 403),
    ],
)
def test_without_a_token_only_this_machines_names_are_answered(
    broker: Broker, host: str, status: int
) -> None:
    """A page in a browser can make its own name resolve to this machine (DNS rebinding)."""
    assert ask(f"{broker.http_url}/health", headers={"Host": host}).status == status


def test_idle_connections_do_not_keep_others_out(broker: Broker) -> None:
    """The oldest of those that ask nothing goes."""
    host, _, port = broker.http_url.removeprefix("http://").rpartition(":")
    idle = [socket.create_connection((host, int(port)), timeout=60) for _ in range(64)]
    assert ask(f"{broker.http_url}/health").status == 200
    more = [socket.create_connection((host, int(port)), timeout=60) for _ in range(64)]
    assert ask(f"{broker.http_url}/health").status == 200
    for each in idle:
        with contextlib.suppress(ConnectionResetError):
            assert each.recv(1) == b""
    for each in (*idle, *more):
        each.close()


@pytest.mark.slow
def test_where_there_is_an_authorizer_requests_have_one_principals_rights(tmp_path: Path) -> None:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "kstore.http.listener": "http://127.0.0.1:0",
        "kstore.fault.injection.enable": "true",
    }
    with KstoreBroker(tmp_path, overrides=settings | {"super.users": "User:ANONYMOUS"}) as broker:
        from kstore.clients import AdminClient, NewTopic

        with AdminClient(bootstrap_servers=f"{broker.host}:{broker.port}") as admin:
            admin.create_topics([NewTopic("hidden", 1), NewTopic("shown", 1)])
            read = AclResourceType.TOPIC, "shown", "User:ANONYMOUS", AclOperation.READ
            admin.create_acls([Acl(*read)])

    def told(principal: str | None) -> tuple[list[str], int, int]:
        chosen = {} if principal is None else {"kstore.http.principal": principal}
        with KstoreBroker(tmp_path, overrides={**settings, **chosen}) as broker:
            url = broker.error_output().rpartition("the HTTP API is at ")[2].split()[0]
            names = [row["name"] for row in ask(f"{url}/topics").body["topics"]]
            assert ask(f"{url}/health").status == 200
            assert ask(f"{url}/cluster").status == 200
            found = names, ask(f"{url}/faults").status, ask(f"{url}/faults", "POST", DROP).status
            told_of = f'denied principal="{principal or "User:ANONYMOUS"}"' in broker.error_output()
            assert told_of is (found[1] == 403), "a denial is in the log"
            return found

    assert told(None) == (["shown"], 403, 403)
    assert told("User:nobody") == ([], 403, 403)
    assert told("User:admin") == (["hidden", "shown"], 200, 201)


def test_without_a_host_it_is_this_machine_alone(tmp_path: Path) -> None:
    with KstoreBroker(tmp_path, overrides={"kstore.http.listener": "http://:0"}) as broker:
        assert "the HTTP API is at http://127.0.0.1:" in broker.error_output()


def test_faults_need_a_setting_of_their_own(tmp_path: Path) -> None:
    settings = {"kstore.http.listener": "http://127.0.0.1:0"}
    with KstoreBroker(tmp_path, overrides=settings) as plain:
        url = plain.error_output().rpartition("the HTTP API is at ")[2].split()[0]
        answer = ask(f"{url}/faults", "POST", DROP)
    assert answer.status == 403
    assert "kstore.fault.injection.enable=true" in answer.body["error"]


def test_others_are_asked_for_a_token_that_is_never_logged(tmp_path: Path) -> None:
    settings = {"kstore.http.listener": "http://0.0.0.0:0", "kstore.http.token": TOKEN}
    with KstoreBroker(tmp_path, overrides=settings) as broker:
        port = broker.error_output().rpartition("the HTTP API is at ")[2].split()[0].split(":")[-1]
        url = f"http://127.0.0.1:{port}/health"
        assert ask(url).status == 401
        assert ask(url, headers={"Authorization": "Bearer wrong"}).status == 401
        assert ask(url, headers={"Authorization": f"Basic {TOKEN}"}).status == 401
        assert ask(url).headers["WWW-Authenticate"] == "Bearer"
        assert ask(url, headers={"Authorization": f"Bearer {TOKEN}"}).status == 200
    assert TOKEN not in broker.error_output()
    shown = subprocess.run(
        [sys.executable, "-m", "kstore", "serve", "--config-print",
         f"--override=kstore.http.token={TOKEN}"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert "kstore.http.token=[hidden]" in shown.stdout
    assert TOKEN not in shown.stdout


@pytest.mark.parametrize(
    "url", ["http://0.0.0.0:0", "https://127.0.0.1:0", "127.0.0.1:0", "http://127.0.0.1:0/x"]
)
def test_an_address_that_others_reach_needs_a_token_and_one_that_is_none_is_refused(
    tmp_path: Path, url: str
) -> None:
    with pytest.raises(BrokerDiedError, match=r"kstore\.http\.listener"):
        KstoreBroker(tmp_path, overrides={"kstore.http.listener": url}).start()


@pytest.mark.slow
def test_a_broker_without_it_loads_nothing_of_it(tmp_path: Path) -> None:
    code = (
        "import re, sys, kstore.broker.app; "
        "print([m for m in sys.modules if re.search('http|h11|faults|failing', m)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_a_cluster_is_told_by_each_of_its_brokers(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        assert sorted(cluster.http_urls) == [1, 2, 3]
        told = [ask(f"{url}/cluster").body for url in cluster.http_urls.values()]
        assert [[row["id"] for row in each["brokers"]] for each in told] == [[1, 2, 3]] * 3
        assert len({each["controller_id"] for each in told}) == 1
        address = cluster[2].address
        cluster[2].kill()
        assert sorted(cluster.http_urls) == [1, 3]
        cluster.start()
        assert cluster[2].address == address
        with pytest.raises(BrokerError, match="in use"):
            Broker(tmp_path / "other", {"listeners": f"PLAINTEXT://{address}"}).start()
