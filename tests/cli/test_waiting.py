"""No command is silent. Within seconds stderr shows what it waits for, an error ends it if
something does not exist, and a long command shows its progress.
"""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstore.cli import progress as progress_module
from kstore.cli.progress import HowFar, Progress
from kstore.cli.waiting import telling_waits, waiting_for
from kstore.clients import AdminClient
from tests.cli.shell import run_here
from tests.conformance.kstore_broker import KstoreBroker

NOBODY = "127.0.0.1:1"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KstoreBroker]:
    with KstoreBroker(tmp_path_factory.mktemp("waiting")) as running:
        with AdminClient(running.bootstrap) as admin:
            admin.create_topics({"t": 2})
        yield running


def kstore(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kstore", *arguments], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def first_line(process: subprocess.Popen[str], stream: str = "stderr") -> str:
    """The first line that a command writes; then the command is stopped."""
    pipe = getattr(process, stream)
    try:
        return str(pipe.readline())
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


@pytest.mark.parametrize(
    "arguments",
    [
        ("topic", "list", "-b", NOBODY),
        pytest.param(("group", "list", "-b", NOBODY), marks=pytest.mark.slow),
        pytest.param(("consume", "t", "-b", NOBODY), marks=pytest.mark.slow),
        pytest.param(("replicate", "t", "--from", NOBODY, "--to", NOBODY), marks=pytest.mark.slow),
        pytest.param(("verify-order", "t", "-b", NOBODY), marks=pytest.mark.slow),
    ],
)
def test_a_command_without_a_broker_says_what_it_waits_for(arguments: tuple[str, ...]) -> None:
    told = first_line(kstore(*arguments))
    assert f"waiting for {NOBODY}, for up to " in told
    assert f"cannot connect to {NOBODY}" in told


@pytest.mark.slow
def test_with_json_it_is_an_event() -> None:
    process = kstore("replicate", "t", "--from", NOBODY, "--to", NOBODY, "--json")
    assert process.stdout is not None
    rows = (json.loads(line) for line in process.stdout)
    told = next(row for row in rows if row["event"] == "waiting")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert f"waiting for {NOBODY}" in told["text"]


@pytest.mark.slow
def test_a_broker_that_stands_still_is_waited_for_aloud(broker: KstoreBroker) -> None:
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        assert "no answer yet" in first_line(kstore("topic", "list", "-b", broker.bootstrap))
    finally:
        os.kill(broker.pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("nothere",), 1, "there is no topic 'nothere'"),
        (("t", "--partition", "99"), 2, "topic 't' has partitions 0 to 1, not 99"),
    ],
)
def test_consume_of_what_is_not_there_ends(
    broker: KstoreBroker, arguments: tuple[str, ...], code: int, told: str
) -> None:
    done = run_here("consume", *arguments, "-b", broker.bootstrap)
    assert (done.code, told in done.errors.decode()) == (code, True), done.errors


@pytest.mark.slow
def test_consume_without_records_says_that_it_waits(broker: KstoreBroker) -> None:
    told = first_line(kstore("consume", "t", "--offset", "end", "-b", broker.bootstrap))
    assert told == "kstore: waiting for records of t-0, t-1; Ctrl-C to stop\n"


def test_produce_tells_its_count(broker: KstoreBroker) -> None:
    done = run_here("produce", "counted", "-b", broker.bootstrap, stdin=b"a\nb\nc\n")
    assert (done.output, done.errors) == (b"", b"kstore: 3 records sent to counted\n")


def test_progress_in_a_pipe_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    shown = Progress(as_json=False)
    for second in range(1, 21):
        now[0] = 100.0 + second
        shown.show(HowFar(10 * second, 300 - 10 * second, bytes=second * 1_000_000), {})
    assert capsys.readouterr().err.splitlines() == [
        "40 records (10/s), 4.0 MB (1.0 MB/s), 260 to go, 26 s left",
        "140 records (10/s), 14.0 MB (1.0 MB/s), 160 to go, 16 s left",
    ]


def test_progress_with_json_is_an_event_a_second(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    shown = Progress(as_json=True)
    for half in range(5):
        now[0] = 100.0 + half / 2
        shown.show(HowFar(half, 20 - half), {"records": half})
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["records"] for row in rows] == [0, 2, 4]
    assert rows[1] == {"event": "progress", "seconds": 1.0, "seconds_left": 9.0, "records": 2}


def test_progress_on_a_terminal_is_a_bar_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    shown = Progress(as_json=False)
    shown.show(HowFar(3, 7, bytes=2_000_000), {})
    shown.print("something [red] happened")
    shown.end()
    assert "3 records" in screen.getvalue()
    assert "something [red] happened" in screen.getvalue()


def test_what_is_waited_for_is_told_to_the_innermost() -> None:
    log = logging.getLogger("kstore.clients.waiting")
    outer: list[str] = []
    inner: list[str] = []
    with telling_waits(outer.append):
        log.info("one")
        with telling_waits(inner.append):
            log.info("two")
        log.info("three")
    log.info("four")
    assert (outer, inner) == (["one", "three"], ["two"])


def test_a_wait_that_is_over_soon_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    with waiting_for("nothing", told.append):
        pass
    monkeypatch.setattr("kstore.cli.waiting.WAIT_S", 0.001)
    with waiting_for("something", told.append):
        while not told:
            time.sleep(0.001)
    assert told == ["waiting for something"]
