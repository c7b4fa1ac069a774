"""A broker as a separate process: the error of one that does not become ready, and its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kstore.broker_process import (
    BrokerEndedError,
    BrokerLateError,
    BrokerProcess,
    BrokerProcessError,
    Ended,
    Ready,
    each_ready,
    end_of_file,
    serve_command,
)

Start = Callable[..., BrokerProcess]
LONG_S = 60.0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a command. At the end of the test it is stopped."""
    made: list[BrokerProcess] = []

    def begin(*command: str, name: str = "the broker") -> BrokerProcess:
        made.append(BrokerProcess(command, name=name, log=tmp_path / f"{name}.log"))
        return made[-1]

    yield begin
    for process in made:
        process.end(signal.SIGKILL)


def script(text: str) -> list[str]:
    """A program that is not a broker."""
    return [sys.executable, "-c", text]


def serve(folder: Path, address: str = "127.0.0.1:0") -> list[str]:
    """A broker in the folder."""
    settings = {"listeners": f"PLAINTEXT://{address}", "log.dirs": str(folder / "data")}
    return serve_command(*(f"--override={name}={value}" for name, value in settings.items()))


def deadline() -> float:
    return time.monotonic() + LONG_S


def test_a_broker_says_where_it_is_and_ends_cleanly(start: Start, tmp_path: Path) -> None:
    process = start(*serve(tmp_path))
    process.wait_ready(deadline())
    address, ready_ms, http = process.ready
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), timeout=LONG_S).close()
    assert ready_ms > 0
    assert http == ""
    assert os.getsid(process.pid) == process.pid
    assert process.end() == Ended(0, was_killed=False)
    assert not process.is_running
    assert process.end() == Ended(0, was_killed=False)


def test_settings_in_the_environment_are_not_a_brokers(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KSTORE_NOSUCH_SETTING", "1")
    monkeypatch.setenv("OTHER", "2")
    names = "import os; print([name for name in ('KSTORE_NOSUCH_SETTING', 'OTHER') if name in "
    process = start(*script(names + "os.environ])"))
    process.wait_ready(deadline())
    assert process.ready_line == "['OTHER']"


def test_a_port_in_use_is_told_with_the_last_lines(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start(*serve(tmp_path, f"127.0.0.1:{port}"), name="broker 7")
        with pytest.raises(BrokerEndedError) as problem:
            process.wait_ready(deadline())
    assert problem.value.exit_code == 1
    words = str(problem.value)
    assert words.startswith("broker 7 exited before it was ready (exit code 1):\nkstore: ")
    assert f"{port} is in use by another process" in words


def test_a_broker_that_is_late_is_told_and_runs_on(start: Start) -> None:
    idle = start(*script("import time; time.sleep(600)"), name="idle")
    with pytest.raises(BrokerLateError, match="not ready in time: idle") as problem:
        idle.wait_ready(time.monotonic())
    assert problem.value.processes == [idle]
    assert idle.is_running


def test_each_is_told_when_it_is_ready(start: Start, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    second = start(*script(f"open({str(gate)!r}).read(); print('second')"), name="second")
    first = start(*script("print('first')"), name="first")
    ready = each_ready([second, first], deadline())
    assert next(ready) is first
    gate.write_text("go")
    assert next(ready) is second
    assert next(ready, None) is None


def test_one_that_ends_is_told_though_others_still_start(start: Start) -> None:
    slow = start(*script("import time; time.sleep(600)"), name="slow")
    bad = start(*script("raise SystemExit('no disk')"), name="bad")
    with pytest.raises(
        BrokerEndedError, match=r"bad exited .* \(exit code 1\):\nno disk"
    ) as problem:
        list(each_ready([slow, bad], deadline()))
    assert problem.value.process is bad
    assert slow.is_running


def test_what_can_not_be_started_is_told(tmp_path: Path) -> None:
    with pytest.raises(BrokerProcessError, match=r"broker 3 can't be started: .*nosuch"):
        BrokerProcess(["nosuch-program"], name="broker 3")
    with pytest.raises(BrokerProcessError, match=rf"can't be started: .*{tmp_path}"):
        BrokerProcess(script(""), log=tmp_path)  # a folder: no log can be written there


def test_who_ignores_the_signal_is_killed(start: Start) -> None:
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True)"
    process = start(*script(f"import signal, time; {ignore}; time.sleep(600)"))
    process.wait_ready(deadline())
    assert process.end(timeout_s=0.01) == Ended(-signal.SIGKILL, was_killed=True)


def test_a_paused_broker_ends(start: Start) -> None:
    process = start(*script("print('ready', flush=True); import time; time.sleep(600)"))
    process.wait_ready(deadline())
    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert process.end() == Ended(-signal.SIGTERM, was_killed=False)


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    process = BrokerProcess(script("print(1)"), log=tmp_path / "log", stdin=subprocess.PIPE)
    process.wait_ready(deadline())
    process.end()
    with pytest.raises(BrokerProcessError):
        BrokerProcess(["nosuch-program"], log=tmp_path / "log")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_ready_line_is_waited_for_only_where_there_is_one(tmp_path: Path) -> None:
    process = BrokerProcess(script("print(1)"), log=tmp_path / "log", has_ready_line=False)
    with pytest.raises(ValueError, match="without a ready line"):
        process.wait_ready(deadline())
    process.end()


def test_what_serve_says_is_read() -> None:
    process = BrokerProcess(script(""), stdin=None)
    process.end()
    process.ready_line = '{"address": "[::1]:9", "ready_ms": 5, "log_dirs": [], "http": "http://h"}'
    assert process.ready == Ready("[::1]:9", 5, "http://h")


def test_the_end_of_a_log_is_short(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert end_of_file(log) == ""
    log.write_text("x" * 5000 + "end")
    assert end_of_file(log) == "x" * 3997 + "end"
    assert end_of_file(log, start=5000) == "end"
