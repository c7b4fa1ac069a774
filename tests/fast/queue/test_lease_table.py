"""The table of leases against a slow model: several owners of one file, gaps, growth, kills."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from array import array
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kstore._fast.queue.lease_file import LeaseFileError
from kstore._fast.queue.lease_table import LeaseTable

TOPIC_ID = bytes(range(16))
BOOT_ID = b"a boot's id 0001"
LEASE_MS = 1000
TRIES = 3


def table(path: Path | str, *, start: int = 0, boot: bytes = BOOT_ID) -> LeaseTable:
    """A table over a file, with a file of dead letters."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    made = LeaseTable(fd, TOPIC_ID, boot, start)
    made.open_dead(os.open(f"{path}.dead", os.O_RDWR | os.O_CREAT))
    return made


def offer(leases: LeaseTable, offsets: list[int], end: int) -> None:
    """Tell it of the log's messages."""
    first = leases.next_offset
    wanted = array("q", [each for each in offsets if each >= first])
    leases.look_ahead(first, wanted, end, leases.cuts)


class Leases(RuleBasedStateMachine):
    """Three owners take and settle the messages of one log."""

    @initialize(start=st.integers(0, 2**33))
    def begin(self, start: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "queue")
        self.now = 10_000
        self.end = start
        self.offsets: list[int] = []
        self.taken: dict[int, tuple[str, int, int, int]] = {}
        """offset -> (leased|waiting|done|dead, owner, deliveries, due)"""
        self.owners = [table(self.path, start=start) for _ in range(3)]
        self.model_head = start
        self.boot = BOOT_ID

    def teardown(self) -> None:
        for each in getattr(self, "owners", []):
            each.abandon()
        if hasattr(self, "folder"):
            self.folder.cleanup()

    @rule(count=st.integers(1, 40), gap=st.integers(0, 60), often=st.booleans())
    def append(self, count: int, gap: int, often: bool) -> None:
        for _ in range(count * (150 if often else 1)):
            self.offsets.append(self.end)
            self.end += 1
        self.end += gap

    @rule(ms=st.integers(1, 700))
    def sleep(self, ms: int) -> None:
        self.now += ms

    @rule(owner=st.integers(0, 2), limit=st.integers(1, 6000))
    def take_new(self, owner: int, limit: int) -> None:
        leases = self.owners[owner]
        wanted = [each for each in self.offsets if each >= self.model_head]
        offer(leases, wanted, self.end)
        first, count = leases.take_new(limit, self.now + LEASE_MS)
        assert first == 0
        assert count == min(limit, len(wanted))
        for offset in wanted[:count]:
            self.taken[offset] = ("leased", owner, 1, self.now + LEASE_MS)
        self.model_head = self.end if count == len(wanted) else wanted[count - 1] + 1

    @rule(owner=st.integers(0, 2), limit=st.integers(1, 50))
    def take_again(self, owner: int, limit: int) -> None:
        found = self.owners[owner].take_again(limit, self.now, self.now, self.now + LEASE_MS, TRIES)
        wanted = []
        for offset in sorted(self.taken):
            state, _, deliveries, due = self.taken[offset]
            if len(wanted) == limit:
                break
            if state in {"leased", "waiting"} and due <= self.now:
                if deliveries >= TRIES:
                    self.taken[offset] = ("dead", 0, deliveries, 0)
                else:
                    wanted.append((offset, deliveries + 1))
                    self.taken[offset] = ("leased", owner, deliveries + 1, self.now + LEASE_MS)
        assert found == wanted

    def _leased(self, pick: int) -> tuple[int, int, int]:
        found = [(offset, *row[1:3]) for offset, row in self.taken.items() if row[0] == "leased"]
        return found[pick % len(found)]

    def _any_leased(self) -> bool:
        return any(row[0] == "leased" for row in self.taken.values())

    @precondition(_any_leased)
    @rule(pick=st.integers(0, 10_000))
    def ack(self, pick: int) -> None:
        offset, owner, deliveries = self._leased(pick)
        assert self.owners[(owner + 1) % 3].ack(offset, deliveries) is False
        assert self.owners[owner].ack(offset, deliveries - 1) is False
        assert self.owners[owner].ack(offset, deliveries) is True
        assert self.owners[owner].ack(offset, deliveries) is False
        self.taken[offset] = ("done", 0, 0, 0)

    @precondition(_any_leased)
    @rule(pick=st.integers(0, 10_000), delay=st.integers(0, 900), tries=st.sampled_from([0, TRIES]))
    def nack(self, pick: int, delay: int, tries: int) -> None:
        offset, owner, deliveries = self._leased(pick)
        leases, until = self.owners[owner], self.now + delay
        assert leases.nack(offset, deliveries, self.now, until, tries, b"no") is True
        if deliveries >= tries:
            self.taken[offset] = ("dead", 0, deliveries, 0)
        else:
            self.taken[offset] = ("waiting", 0, deliveries, until)

    @precondition(_any_leased)
    @rule(pick=st.integers(0, 10_000))
    def extend(self, pick: int) -> None:
        offset, owner, deliveries = self._leased(pick)
        assert self.owners[owner].extend(offset, deliveries, self.now + 2 * LEASE_MS)
        self.taken[offset] = ("leased", owner, deliveries, self.now + 2 * LEASE_MS)

    @rule(owner=st.integers(0, 2), killed=st.booleans())
    def end_owner(self, owner: int, killed: bool) -> None:
        if killed:
            self.owners[owner].abandon()
            self.owners[(owner + 1) % 3].free_dead_owners()
        else:
            self.owners[owner].close()
        self.owners[owner] = table(self.path, boot=self.boot)
        for offset, (state, who, deliveries, _) in self.taken.items():
            if state == "leased" and who == owner:
                self.taken[offset] = ("waiting", 0, deliveries, 0)

    @rule()
    def restart_the_machine(self) -> None:
        for each in self.owners:
            each.abandon()
        self.boot = os.urandom(16)
        self.owners = [table(self.path, boot=self.boot) for _ in range(3)]
        for offset, (state, _, deliveries, _) in self.taken.items():
            if state == "leased":
                self.taken[offset] = ("waiting", 0, deliveries, 0)

    @invariant()
    def counts_fit(self) -> None:
        if not hasattr(self, "owners"):
            return
        states = [row[0] for row in self.taken.values()]
        leased, waiting, dead, acked, _, _ = self.owners[0].counts()
        assert (leased, waiting) == (states.count("leased"), states.count("waiting"))
        assert (dead, acked) == (states.count("dead"), states.count("done"))
        assert self.owners[0].next_offset == self.model_head
        undone = [at for at, row in self.taken.items() if row[0] in {"leased", "waiting"}]
        assert self.owners[0].floor <= min(undone, default=self.model_head)
        assert sorted(row[0] for row in self.owners[0].dead_letters()) == sorted(
            at for at, row in self.taken.items() if row[0] == "dead"
        )


TestLeases = Leases.TestCase
TestLeases.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_long_gap_is_passed_when_all_is_done(tmp_path: Path) -> None:
    leases = table(tmp_path / "queue")
    offer(leases, [0, 10**12], 10**12 + 1)
    assert leases.take_new(5, LEASE_MS) == (0, 1)
    assert leases.take_new(5, LEASE_MS) == (1, 0)  # the first one is not done
    assert leases.ack(0, 1)
    assert leases.take_new(5, LEASE_MS) == (1, 1)
    assert leases.ack(10**12, 1)
    assert (leases.floor, leases.next_offset) == (10**12 + 1, 10**12 + 1)
    leases.close()


def test_what_the_log_lost_is_counted(tmp_path: Path) -> None:
    leases = table(tmp_path / "queue")
    offer(leases, list(range(10)), 10)
    leases.take_new(6, LEASE_MS)
    leases.ack(1, 1)
    assert leases.drop_before(8) == 5
    assert (leases.floor, leases.next_offset, leases.counts()[0]) == (8, 8, 0)
    leases.close()


def test_a_log_that_was_cut_off_gives_its_offsets_anew(tmp_path: Path) -> None:
    leases = table(tmp_path / "queue")
    offer(leases, list(range(10)), 10)
    leases.take_new(10, LEASE_MS)
    leases.cut_at(4)
    assert leases.take_new(10, LEASE_MS) == (0, 0)  # what it had read is no longer in the log
    assert (leases.next_offset, leases.counts()[0]) == (4, 4)
    offer(leases, list(range(10)), 10)
    assert leases.take_new(10, LEASE_MS) == (0, 6)
    leases.close()


@pytest.mark.parametrize(
    ("at", "data", "said"),
    [
        (0, b"something else", "does not begin like"),
        (8, b"\x07\0\0\0", "version 7"),
        (16, b"\xff" * 16, "another log"),
        (48, b"\x01", "contradict each other"),
        (64, b"\xff" * 8, "contradict each other"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, at: int, data: bytes, said: str) -> None:
    path = tmp_path / "queue"
    table(path).close()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)
    with pytest.raises(LeaseFileError, match=said):
        table(path)
    path.write_bytes(b"KSQUEUE\0\1\0\0\0")
    with pytest.raises(LeaseFileError, match="too short"):
        table(path)


def test_a_damaged_dead_letter_is_left_out(tmp_path: Path) -> None:
    leases = table(tmp_path / "queue")
    offer(leases, [0, 1, 2], 3)
    leases.take_new(3, LEASE_MS)
    for offset in range(3):
        assert leases.nack(offset, 1, 77, 77, 0, b"reason %d" % offset)
    with (tmp_path / "queue.dead").open("r+b") as file:
        file.seek(130)
        file.write(b"\xff")
    assert leases.dead_letters() == [(0, 1, 77, b"reason 0"), (2, 1, 77, b"reason 2")]
    leases.forget_dead([(0, 1, 77)])
    assert leases.dead_letters() == [(2, 1, 77, b"reason 2")]
    assert leases.counts()[2] == 1
    leases.forget_dead([(2, 1, 77)])
    assert leases.dead_letters() == []
    leases.close()


def test_bad_calls_are_refused(tmp_path: Path) -> None:
    leases = table(tmp_path / "queue")
    for offsets, end in (([3, 2], 9), ([1, 1], 9), ([1, 2], 2)):
        with pytest.raises(ValueError, match="ascending"):
            leases.look_ahead(0, array("q", offsets), end, 0)
    leases.close()
    leases.close()
    with pytest.raises(ValueError, match="closed"):
        leases.take_new(1, LEASE_MS)


def test_only_who_waits_is_woken_and_only_by_what_can_be_had(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    one, two = table(path), table(path)
    offer(one, [0, 1, 2], 3)
    assert one.take_new(3, LEASE_MS) == (0, 3)
    one.nack(0, 1, 0, 0, TRIES, b"")
    assert two.wake_ups == 0  # no worker waited
    two.watch()
    assert one.watched
    one.ack(1, 1)
    assert two.wake_ups == 0
    one.close()  # gives the third back
    assert two.wake_ups == 1
    assert not two.watched  # a worker that still waits says so again
    two.close()


STOPPED_WITH_THE_LOCK = """
import ctypes, mmap, os, signal, sys
state = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 4096)
mutex = ctypes.addressof(ctypes.c_char.from_buffer(state, 512))
assert ctypes.CDLL(None).pthread_mutex_lock(ctypes.c_void_p(mutex)) == 0
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_process_that_is_stopped_with_the_lock_is_named_as_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    leases = table(path)
    offer(leases, [0], 1)
    assert leases.take_new(1, LEASE_MS) == (0, 1)
    with subprocess.Popen([sys.executable, "-c", STOPPED_WITH_THE_LOCK, str(path)]) as stopped:
        try:
            os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
            assert leases.lock_ms == 10_000
            leases.lock_ms = 50
            with pytest.raises(TimeoutError, match=r"for 0\.05 s: look for one that is stopped"):
                leases.ack(0, 1)
        finally:
            stopped.kill()
    assert leases.ack(0, 1)
    leases.close()
