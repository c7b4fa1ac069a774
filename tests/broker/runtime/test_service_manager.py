"""The messages to systemd, over a socket that stands in for it; and its check of the unit."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from kstore.broker.runtime.service_manager import ServiceManager
from kstore.broker_process import BrokerProcess, serve_command
from tests.broker.harness.plane_harness import ManualLoop

UNITS = Path(__file__).parents[3] / "ops" / "systemd"
MOST_EXPOSED = 2.0
"""By systemd's own count, from 0 (safe) to 10."""


class Socket:
    """The systemd side of the socket."""

    def __init__(self, name: str) -> None:
        """A name that begins with @ is an abstract socket."""
        self.name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + name[1:] if name.startswith("@") else name)
        self._socket.settimeout(60)

    def next(self) -> dict[str, str]:
        lines = self._socket.recv(4096).decode().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def is_empty(self) -> bool:
        self._socket.setblocking(False)
        try:
            self._socket.recv(4096, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        finally:
            self._socket.settimeout(60)
        return False

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path):
    name = str(tmp_path / "s") if request.param == "path" else f"@kstore-test-{tmp_path}"
    end = Socket(name)
    yield end
    end.close()


def manager(end: Socket, loop: ManualLoop, told: list[str] | None = None, **more: str):
    report = (lambda sentence: None) if told is None else told.append
    return ServiceManager({"NOTIFY_SOCKET": end.name, **more}, loop, report)  # type: ignore[arg-type]


def test_ready_comes_with_a_status(systemd):
    made = manager(systemd, ManualLoop())
    made.ready("Answers clients")
    made.close()
    assert systemd.next() == {"READY": "1", "STATUS": "Answers clients"}
    assert systemd.is_empty()


def test_the_loop_itself_feeds_the_watchdog_twice_in_its_period(systemd):
    loop = ManualLoop()
    made = manager(systemd, loop, WATCHDOG_USEC="30000000")
    made.ready("")
    systemd.next()
    assert systemd.next() == {"WATCHDOG": "1"}
    assert systemd.is_empty(), "while the loop does nothing there is no ping"
    for _ in range(3):
        assert [timer.delay_s for timer in loop.timers] == [15.0]
        loop.fire_timers()
        assert systemd.next() == {"WATCHDOG": "1"}
    made.close()
    assert loop.timers[0].cancelled


@pytest.mark.parametrize(
    "given",
    [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "x"},
     {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid() + 1)}],
)  # fmt: skip
def test_without_a_watchdog_for_this_process_there_are_no_pings(systemd, given):
    loop = ManualLoop()
    made = manager(systemd, loop, **given)
    made.ready("")
    systemd.next()
    assert systemd.is_empty()
    assert loop.timers == []
    made.close()


def test_a_manager_that_is_gone_is_told_once_and_stops_nothing(systemd):
    told: list[str] = []
    loop = ManualLoop()
    systemd.close()
    Path(systemd.name).unlink(missing_ok=True)
    made = manager(systemd, loop, told, WATCHDOG_USEC="1000000")
    made.ready("")
    loop.fire_timers()
    made.close()
    assert len(told) == 1
    assert told[0].startswith("the service manager can't be notified: ")


def test_a_broker_tells_its_start_its_life_and_its_end(systemd, tmp_path: Path):
    environment = {
        **os.environ, "NOTIFY_SOCKET": systemd.name, "WATCHDOG_USEC": "400000",
    }  # fmt: skip
    command = serve_command(
        "--override=listeners=PLAINTEXT://127.0.0.1:0", f"--override=log.dirs={tmp_path / 'data'}"
    )
    broker = BrokerProcess(command, log=tmp_path / "log", environment=environment)
    try:
        broker.wait_ready(time.monotonic() + 60)
        assert systemd.next() == {"STATUS": "Opening the logs"}
        port = broker.ready.address.rpartition(":")[2]
        assert systemd.next() == {
            "READY": "1", "STATUS": f"Serving clients at 127.0.0.1 port {port}",
        }  # fmt: skip
        assert [systemd.next() for _ in range(3)] == [{"WATCHDOG": "1"}] * 3
        os.kill(broker.pid, signal.SIGTERM)
        last = systemd.next()
        while "WATCHDOG" in last:
            last = systemd.next()
        assert last == {"STOPPING": "1", "STATUS": "Stopping"}
        assert broker.process.wait(60) == 0
    finally:
        broker.end()


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit file, with a program that exists on this machine."""
    text = (UNITS / "kstore.service").read_text()
    path = tmp_path / "kstore.service"
    path.write_text(text.replace("/opt/kstore/bin/kstore serve", "/bin/true"))
    return path


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not there")
def test_systemd_finds_nothing_wrong_with_the_unit_and_counts_it_as_safe(unit: Path):
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (checked.returncode, checked.stderr) == (0, "")
    limit = f"--threshold={round(MOST_EXPOSED * 10)}"
    counted = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", limit, "--no-pager", str(unit)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert counted.returncode == 0, counted.stdout.splitlines()[-1]


def test_the_unit_waits_for_ready_and_watches_the_loop():
    lines = (UNITS / "kstore.service").read_text().splitlines()
    assert {"Type=notify", "WatchdogSec=30", "NoNewPrivileges=yes", "ProtectSystem=strict"} <= set(
        lines
    )
