"""The console at a broker's HTTP listener: a process that the first request starts."""

from __future__ import annotations

import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from typing import NamedTuple

import pytest

from kstore.clients import AdminClient, Producer
from kstore.testing import Broker


class Answer(NamedTuple):
    status: int
    text: str
    headers: dict[str, str]


def ask(url: str, headers: dict[str, str] | None = None, data: bytes | None = None) -> Answer:
    """One request, with its redirects."""
    jar = urllib.request.HTTPCookieProcessor(CookieJar())
    request = urllib.request.Request(url, data, headers or {})
    try:
        with urllib.request.build_opener(jar).open(request, timeout=60) as answer:
            return Answer(answer.status, answer.read().decode(), dict(answer.headers))
    except urllib.error.HTTPError as refused:
        return Answer(refused.code, refused.read().decode(), dict(refused.headers))


def consoles(broker: Broker) -> list[int]:
    """The console processes of a broker."""
    pid = broker.pid
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((each / "stat").read_text().rpartition(")")[2].split()[1])
            words = (each / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        if parent == pid and b"kstore.console.run" in words:
            found.append(int(each.name))
    return found


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker whose console was not opened yet."""
    with Broker(tmp_path_factory.mktemp("own")) as running:
        yield running


def test_the_first_page_starts_one_process_and_others_share_it(own: Broker) -> None:
    assert ask(f"{own.http_url}/health").status == 200
    assert consoles(own) == []
    first = ask(f"{own.http_url}/")
    assert first.status == 200
    assert "<h1>Brokers" in first.text
    assert "frame-ancestors 'none'" in first.headers["content-security-policy"]
    with AdminClient(own.address) as admin:
        admin.create_topics(["from-outside"])
    assert "from-outside" in ask(f"{own.http_url}/ui/topics?q=FROM").text
    assert "from-outside" not in ask(f"{own.http_url}/ui/topics?q=other").text
    style = ask(f"{own.http_url}/ui/static/console.css")
    assert style.headers["Content-Type"].startswith("text/css")
    assert len(consoles(own)) == 1


def test_a_live_tail_comes_through_the_broker_as_it_happens(own: Broker) -> None:
    with AdminClient(own.address) as admin:
        admin.create_topics({"live": 1})
    url = f"{own.http_url}/ui/topics/live/tail?at=0:0"
    with Producer(bootstrap_servers=own.address) as producer:
        producer.partitions_for("live")
        with urllib.request.urlopen(url, timeout=60) as events:
            assert events.readline() == b"retry: 500\n"
            producer.send("live", b"seen at once").result(20)
            lines = (line for line in events if b"seen at once" in line)
            assert next(lines).startswith(b'data: "<tr>')
            assert events.readline() == b"\n", "the answer goes on"


def test_another_site_and_another_host_name_are_refused(own: Broker) -> None:
    assert ask(f"{own.http_url}/", {"Host": "evil.example"}).status == 403
    form = urllib.parse.urlencode({"name": "x"}).encode()
    answer = ask(f"{own.http_url}/ui/topics", {"Origin": "http://evil.example"}, form)
    assert answer.status == 403


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    with Broker(tmp_path, {"kstore.console.enable": "false"}) as broker:
        assert ask(f"{broker.http_url}/").status == 404
        assert consoles(broker) == []


def test_the_process_ends_with_its_broker(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        ask(f"{broker.http_url}/")
        (pid,) = consoles(broker)
        broker.kill()
        while Path(f"/proc/{pid}").exists() and not _is_zombie(pid):
            time.sleep(0.05)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.slow
def test_with_users_the_broker_names_the_mechanisms_that_logins_try(secured: Broker) -> None:
    page = ask(f"{secured.http_url}/")
    assert 'action="/ui/login"' in page.text
    for password, status in (("wrong", 401), ("alice-secret", 200)):
        form = urllib.parse.urlencode({"user": "alice", "password": password}).encode()
        answer = ask(f"{secured.http_url}/ui/login", data=form)
        assert answer.status == status
    assert "User:alice" in answer.text


@pytest.mark.slow
def test_a_console_that_does_not_start_is_told_and_tried_again(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    settings = {"kstore.console.client.config": str(config), "kstore.console.read.only": "true"}
    with Broker(tmp_path / "broker", settings) as broker:
        refused = ask(f"{broker.http_url}/")
        assert refused.status == 503
        assert "did not start" in refused.text
        assert consoles(broker) == []
        config.write_text("client.id=the-console\n")
        assert "read-only" in ask(f"{broker.http_url}/").text
