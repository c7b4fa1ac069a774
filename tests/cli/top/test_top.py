"""`kstore top` with a real broker: in a pipe, as JSON, and on a terminal through a pty."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

import pytest

from kstore.cli.app import run
from kstore.cli.top.http_pages import HttpPageError, read_page
from kstore.cli.top.sample import rows_between
from kstore.cli.top.sampler import Sampler
from kstore.clients import AdminClient, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from kstore.testing.brokers import Broker
from tests.beside.http_answers import HttpAnswers, HttpRequest, Reply

pytestmark = pytest.mark.slow
WAIT_S = 60.0
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker with some topics and a group that lags."""
    with Broker(tmp_path_factory.mktemp("top")) as running:
        with AdminClient(running.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", 2), NewTopic("quiet", 1)])
            produce(running, 30)
            first = TopicPartition("orders", 0)
            admin.alter_group_offsets("billing", {first: OffsetAndMetadata(4)})
        yield running


def produce(broker: Broker, count: int) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(count):
            producer.send("orders", b"x" * 100, partition=number % 2)


class Terminal:
    """A command at a terminal of some size, with all that it wrote."""

    def __init__(self, *arguments: str, columns: int = 100, rows: int = 40) -> None:
        self.master, self.slave = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.slave)
        self.written = ""
        fixed = {"CI", "COLUMNS", "LINES", "NO_COLOR"}  # they say what the terminal is like
        environment = {k: v for k, v in os.environ.items() if k not in fixed}
        environment["TERM"] = "xterm-256color"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kstore", *arguments],
            stdin=self.slave, stdout=self.slave, stderr=self.slave,
            env=environment, start_new_session=True,
        )  # fmt: skip

    def resize(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, size)

    def press(self, keys: str) -> None:
        """From now on only what is written after it counts."""
        self.written = ""
        os.write(self.master, keys.encode())

    def await_text(self, *words: str, without: str | None = None) -> str:
        """Until the latest screen has the words, and not the other one."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            self.read()
            latest = ESCAPES.sub("", self.written.rpartition("\x1b[H")[2])
            if all(word in latest for word in words) and (not without or without not in latest):
                return latest
            assert self.process.poll() is None, self.written
        pytest.fail(f"{words} is not shown: {self.written!r}")

    def read(self, wait_s: float = 0.05) -> bool:
        ready, _, _ = select.select([self.master], [], [], wait_s)
        if ready:
            self.written += os.read(self.master, 65536).decode("utf-8", "replace")
        return bool(ready)

    def end(self) -> int:
        """Its exit code; the terminal is drained meanwhile."""
        deadline = time.monotonic() + WAIT_S
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read()
        while self.read(0):
            pass
        return self.process.wait(1)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal(broker: Broker) -> Iterator[Terminal]:
    words = ["-b", broker.bootstrap_servers, "--http", broker.http_url, "--interval", "0.2"]
    found = Terminal("top", *words)
    yield found
    found.close()


def test_a_sample_has_what_was_done_since_the_one_before(broker: Broker) -> None:
    with AdminClient(broker.bootstrap_servers) as admin:
        sampler = Sampler(admin, [broker.http_url])
        before = sampler.take()
        produce(broker, 20)
        rows = rows_between(before, sampler.take())
    seconds = rows["seconds"]
    topics = {row["topic"]: row for row in rows["topics"]}
    assert round(topics["orders"]["records_per_s"] * seconds) == 20
    assert topics["orders"]["bytes_per_s"] * seconds > 20 * 100
    assert topics["quiet"]["records_per_s"] == 0
    (one,) = rows["brokers"]
    assert one["controller"] is True
    assert one["leaders"] == sum(row["partitions"] for row in rows["topics"])
    assert round(one["records_per_s"] * seconds) == 20
    assert one["in_bytes_per_s"] * seconds > 20 * 100
    assert one["requests_per_s"] > 0
    assert one["connections"] >= 1
    assert one["cpu_percent"] is not None
    assert one["free_bytes"] > 0
    (group,) = rows["groups"]
    assert (group["group"], group["members"], group["records_per_s"]) == ("billing", 0, 0)
    assert group["lag_change"] == 10  # half of the records went to its partition


def test_json_is_an_object_for_each_interval(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["top", "-b", broker.bootstrap_servers, "--json", "--interval", "0.2"]
    assert run([*words, "--count", "2"]) == 0
    first, second = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert set(first) == {
        "time", "seconds", "brokers", "topics", "groups", "holds", "left_out_groups",
    }  # fmt: skip
    assert second["time"] > first["time"]
    assert first["brokers"][0]["cpu_percent"] is None  # no HTTP listener was named


def test_in_a_pipe_it_writes_plain_lines(
    broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    words = ["top", "-b", broker.bootstrap_servers, "--once", "--interval", "0.2"]
    assert run([*words, "--sort", "name"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    names = [line.split()[0] for line in lines if line]
    assert names.index("orders") < names.index("quiet") < names.index("billing")
    assert "\x1b" not in "".join(lines)


def test_at_a_terminal_it_is_live_and_q_leaves(broker: Broker, terminal: Terminal) -> None:
    shown = terminal.await_text("BROKER", "orders", "billing", "topics by rate", "q quit")
    assert "LEADERS" in shown
    terminal.press("n")
    terminal.await_text("topics by name, groups by name")
    terminal.press("s")
    terminal.await_text("topics by size, groups by name")
    terminal.press("p")
    terminal.await_text("paused")
    terminal.press("p")
    terminal.await_text("orders", without="paused")
    terminal.press("")
    terminal.resize(24, 30)
    narrow = terminal.await_text("orders", without="LEADERS")
    assert max(len(line.rstrip()) for line in narrow.splitlines()) <= 24
    assert termios.tcgetattr(terminal.slave) != terminal.before
    terminal.press("q")
    assert terminal.end() == 0
    assert "\x1b[?1049l" in terminal.written  # the screen from before is back
    assert termios.tcgetattr(terminal.slave) == terminal.before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_the_terminal_as_it_was(
    terminal: Terminal, number: signal.Signals, code: int
) -> None:
    terminal.await_text("orders")
    terminal.process.send_signal(number)
    assert terminal.end() == code
    assert "Traceback" not in terminal.written
    assert termios.tcgetattr(terminal.slave) == terminal.before


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("-b", "127.0.0.1:1", "-X", "default.api.timeout.ms=300", "--once"), 1, "127.0.0.1:1"),
        (("--sort", "colour"), 2, "colour"),
        (("--interval", "0"), 2, "interval"),
    ],
)
def test_what_can_not_be_shown_is_one_sentence(
    arguments: tuple[str, ...], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["top", *arguments]) == code
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


def test_a_listener_that_does_not_answer_is_one_sentence(broker: Broker) -> None:
    with pytest.raises(HttpPageError, match="Connection refused"):
        read_page("http://127.0.0.1:1", None)
    with pytest.raises(HttpPageError, match="not a URL"):
        read_page("127.0.0.1:8080", None)


def test_a_token_is_sent_and_asked_for() -> None:
    class Guarded(HttpAnswers):
        def answer(self, asked: HttpRequest) -> Reply:
            if asked.headers.get("authorization") != "Bearer secret":
                return Reply(401)
            is_cluster = asked.path == "/cluster"
            return Reply(200, b'{"node_id": 7}' if is_cluster else b"kstore_connections 5\n")

    with Guarded() as server:
        assert read_page(server.url, "secret") == (7, {"connections": 5.0}, ())
        with pytest.raises(HttpPageError, match="KSTORE_HTTP_TOKEN"):
            read_page(server.url, None)
