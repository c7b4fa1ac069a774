"""Three openings of one log, each with its own descriptors as in separate processes, work in any
order; a dict models what each of them must see.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import kstore
from kstore.log import Log, NotKeeperError, UnexpectedOffsetError

OPENINGS = 3
WHO = st.integers(0, OPENINGS - 1)
SETTINGS: dict[str, Any] = {"shared": True, "segment_bytes": 400, "index_interval_bytes": 100}


class SharedMachine(RuleBasedStateMachine):
    """What is appended and removed is done to a dict from offset to value as well."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="kstore-shared-"))
        self.logs: list[Log] = [self.open() for _ in range(OPENINGS)]
        self.known: dict[int, bytes] = {}
        self.start = self.end = self.count = 0

    def open(self) -> Log:
        return kstore.open_log(self.path, **SETTINGS)

    def teardown(self) -> None:
        for log in self.logs:
            log.close()
        with kstore.open_log(self.path) as log:
            assert not log.recovery.damages
            self.compare(log)
        shutil.rmtree(self.path)

    def values(self, count: int) -> list[bytes]:
        self.count += count
        return [b"%d" % number * 7 for number in range(self.count - count, self.count)]

    def note(self, base_offset: int, values: list[bytes]) -> None:
        self.known |= {base_offset + at: value for at, value in enumerate(values)}
        self.end = base_offset + len(values)

    def keeper(self) -> Log:
        found = [log for log in self.logs if log.local.directory.keeper]
        assert len(found) == 1
        return found[0]

    @rule(who=WHO)
    def append(self, who: int) -> None:
        values = self.values(1)
        assert self.logs[who].append(values[0]) == self.end
        self.note(self.end, values)

    @rule(who=WHO, count=st.integers(1, 6), gap=st.sampled_from([0, 0, 0, 5, 3 * 2**31]))
    def append_many(self, who: int, count: int, gap: int) -> None:
        values = self.values(count)
        if gap:
            info = self.logs[who].append_at(self.end + gap, values)
        else:
            info = self.logs[who].append_many(values, expected_offset=self.end)
        assert info.base_offset == self.end + gap
        self.note(info.base_offset, values)

    @rule(who=WHO, off=st.sampled_from([-1, 1, 100]))
    def append_elsewhere(self, who: int, off: int) -> None:
        with pytest.raises(UnexpectedOffsetError) as caught:
            self.logs[who].append(b"no", expected_offset=max(self.end + off, 0) or self.end + 1)
        assert caught.value.log_end_offset == self.end

    @rule(who=WHO)
    def roll(self, who: int) -> None:
        self.logs[who].roll()

    @rule(fraction=st.floats(0, 1))
    def truncate(self, fraction: float) -> None:
        offset = self.start + int((self.end - self.start) * fraction)
        self.end = self.keeper().truncate(offset)
        assert self.end <= offset
        self.known = {at: value for at, value in self.known.items() if at < self.end}
        self.start = min(self.start, self.end)

    @rule(fraction=st.floats(0, 1))
    def delete_before(self, fraction: float) -> None:
        self.start += int((self.end - self.start) * fraction)
        self.keeper().delete_before(self.start)
        self.known = {at: value for at, value in self.known.items() if at >= self.start}

    @rule(who=WHO)
    def guests_may_not(self, who: int) -> None:
        log = self.logs[who]
        if not log.local.directory.keeper:
            with pytest.raises(NotKeeperError):
                log.truncate(self.start)

    @rule(who=WHO)
    def reopen(self, who: int) -> None:
        self.logs[who].close()
        for log in self.logs:
            if not log.closed:
                log.log_dir.maintenance.tick()
        self.logs[who] = self.open()

    @rule()
    def maintain(self) -> None:
        for log in self.logs:
            log.log_dir.maintenance.tick()

    def compare(self, log: Log) -> None:
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert {r.offset: r.value for r in log.records()} == self.known

    @rule(who=WHO)
    def sees_all(self, who: int) -> None:
        self.compare(self.logs[who])

    @invariant()
    def one_keeps(self) -> None:
        self.keeper()


TestSharedMachine = SharedMachine.TestCase
TestSharedMachine.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
