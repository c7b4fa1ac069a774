"""Offsets in transactions against a slow model that keeps every record."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from kstore.broker.state.groups.offsets import NO_PRODUCER_ID, Offsets
from kstore.broker.state.work import whole
from kstore.protocol.coordinator_records.classic import OffsetCommitKey, OffsetCommitValue

GROUPS, PARTITIONS, PRODUCERS = ("g", "h"), (0, 1), (1, 2, 3)


class Commit(NamedTuple):
    """A commit, in a transaction or (producer -1) in none; offset None deletes."""

    group: str
    partition: int
    producer: int
    offset: int | None


class End(NamedTuple):
    """A marker."""

    producer: int
    committed: bool


commits = st.builds(
    Commit,
    st.sampled_from(GROUPS),
    st.sampled_from(PARTITIONS),
    st.sampled_from((NO_PRODUCER_ID, *PRODUCERS)),
    st.one_of(st.none(), st.integers(0, 99)),
)
ends = st.builds(End, st.sampled_from(PRODUCERS), st.booleans())


class Model:
    """All records that still count, in the order of the log."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, int], tuple[int, int]] = {}
        self.open: list[tuple[int, Commit]] = []

    def replay(self, at: int, step: Commit | End) -> None:
        if isinstance(step, End):
            mine = [(when, item) for when, item in self.open if item.producer == step.producer]
            self.open = [(when, item) for when, item in self.open if (when, item) not in mine]
            for when, item in mine if step.committed else ():
                place = (item.group, item.partition)
                assert item.offset is not None
                if self.stored.get(place, (-1, -1))[0] < when:
                    self.stored[place] = (when, item.offset)
        elif step.offset is None:
            place = (step.group, step.partition)
            self.stored.pop(place, None)
            self.open = [row for row in self.open if (row[1].group, row[1].partition) != place]
        elif step.producer == NO_PRODUCER_ID:
            self.stored[step.group, step.partition] = (at, step.offset)
        else:
            self.open.append((at, step))


@given(st.lists(st.one_of(commits, ends), max_size=40))
def test_pending_offsets_are_those_of_open_transactions(steps: list[Commit | End]) -> None:
    offsets, model = Offsets(), Model()
    for at, step in enumerate(steps):
        model.replay(at, step)
        if isinstance(step, End):
            whole(offsets.replay_transaction_end(step.producer, committed=step.committed))
        else:
            key = OffsetCommitKey(group=step.group, topic="t", partition=step.partition)
            value = None if step.offset is None else OffsetCommitValue(offset=step.offset)
            offsets.replay(key, value, at, step.producer)
        for group in GROUPS:
            for partition in PARTITIONS:
                found = offsets.get(group, "t", partition)
                expected = model.stored.get((group, partition))
                assert (found and found.offset) == (expected and expected[1])
                waiting = [
                    item
                    for _, item in model.open
                    if (item.group, item.partition) == (group, partition)
                ]
                assert offsets.is_pending(group, "t", partition) is bool(waiting)
            assert offsets.has_pending(group) is any(item.group == group for _, item in model.open)
