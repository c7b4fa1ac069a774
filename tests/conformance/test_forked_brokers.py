"""A broker that is forked (tests/beside/forked_brokers.py) is like one that has its own Python:
exit codes, signals, output and file descriptors.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.beside import forked_brokers
from tests.beside.waiting import until
from tests.conformance.kstore_broker import BrokerDiedError, KstoreBroker


@pytest.fixture(autouse=True)
def is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the run is."""
    monkeypatch.setattr(forked_brokers, "IS_WANTED", True)


def forked(folder: Path, **overrides: str) -> KstoreBroker:
    broker = KstoreBroker(folder, overrides=overrides)
    assert broker.launcher() is forked_brokers.ForkedBroker
    return broker


def descriptors(broker: KstoreBroker) -> Counter[str]:
    """How many of each kind. A connection that its client has closed counts for a moment."""
    found: Counter[str] = Counter()
    for entry in Path(f"/proc/{broker.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            target = os.readlink(entry)
            is_own = target.startswith(("/proc", str(broker.folder)))
            found["its own file" if is_own else target.partition(":")[0]] += 1
    return found


def test_one_that_is_stopped_exits_0_and_one_that_is_killed_does_not(tmp_path: Path) -> None:
    broker = forked(tmp_path)
    broker.start()
    with pytest.raises(subprocess.TimeoutExpired):
        broker.process.wait(0)
    assert broker.stop() == 0
    broker.start()
    process = broker.process
    broker.kill()
    assert process.returncode == process.wait() == -signal.SIGKILL


def test_one_that_can_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(BrokerDiedError, match=r"num\.partitions"):
        forked(tmp_path, **{"num.partitions": "many"}).start()


def test_it_has_the_descriptors_of_one_with_a_python_of_its_own(tmp_path: Path) -> None:
    with forked(tmp_path / "first"), forked(tmp_path / "second") as second:
        own = KstoreBroker(tmp_path / "own")
        own.may_be_forked = False
        with own:
            until(lambda: descriptors(second) == descriptors(own), "both have as many of each")


def test_its_environment_is_that_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with forked(tmp_path / "before"):
        monkeypatch.setenv("KSTORE_NUM_PARTITIONS", "many")
    with pytest.raises(BrokerDiedError, match=r"num\.partitions"):
        forked(tmp_path / "after").start()


def test_one_with_an_unusual_environment_or_command_is_not_forked(tmp_path: Path) -> None:
    class Other(KstoreBroker):
        def command(self) -> list[str]:
            return [sys.executable, "-c", ""]

    for broker in (KstoreBroker(tmp_path, environment={"TZ": "UTC"}), Other(tmp_path)):
        assert broker.launcher() is not forked_brokers.ForkedBroker
