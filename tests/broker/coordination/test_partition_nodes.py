"""Partition epochs and expansions in the store (KIP-232, KIP-253): each number is given once."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kstore.broker.coordination import znodes
from kstore.broker.coordination.lmdb_store import LmdbStore
from kstore.broker.coordination.memory_store import MemoryStore
from kstore.broker.coordination.partition_nodes import (
    PARTITION_EPOCH,
    PartitionNode,
    max_partition_epoch,
    multi_with_epochs,
    prepare_epochs,
    read_node,
)
from kstore.broker.coordination.store import (
    BadVersionError,
    Create,
    NodeExistsError,
    NoNodeError,
    Op,
    Set,
    Store,
)
from kstore.broker.state.metadata.image import PartitionImage, TopicImage

NEW = PartitionImage(1, 0, (1,), (1,))


class Interrupted:
    """A store on which another broker acts right before a write of this one's."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.before: list[Callable[[], object]] = []

    def multi(self, ops: Sequence[Op]) -> list[str | int | None]:
        if self.before:
            self.before.pop(0)()
        return self._store.multi(ops)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


@pytest.fixture
def store() -> Store:
    store = MemoryStore()
    znodes.prepare(store)
    return store


def topic(name: str, partitions: int = 1) -> TopicImage:
    return TopicImage(name, uuid4(), (NEW,) * partitions, {})


def epochs(image: TopicImage) -> list[int]:
    return [partition.partition_epoch for partition in image.partitions]


def grow(store: Store, image: TopicImage, count: int = 1) -> TopicImage:
    bumped = znodes.begin_expansion(store, image, [(1,)] * count)
    grown = bumped._replace(partitions=bumped.partitions + (NEW,) * count)
    return znodes.add_partitions(store, grown, len(bumped.partitions))


# ---- numbers ----


def test_each_new_partition_and_each_deletion_takes_the_next_number(store: Store) -> None:
    first = znodes.create_topic(store, topic("a", 2))
    assert epochs(first) == [1, 2]
    assert epochs(znodes.create_topic(store, topic("b"))) == [3]
    assert znodes.delete_topic(store, first) == 4
    assert epochs(znodes.create_topic(store, topic("a", 2))) == [5, 6]
    assert max_partition_epoch(store) == 6
    assert json.loads(store.get(PARTITION_EPOCH)[0]) == {"version": 1, "partition_epoch": 6}
    node = json.loads(store.get("/brokers/topics/a/partitions/1")[0])
    assert node == {"version": 1, "partition_epoch": 6, "prior_leader_epochs": {}}


def test_what_is_read_is_what_was_written(store: Store) -> None:
    made = znodes.create_topic(store, topic("a", 2)._replace(configs={"retention.ms": "7"}))
    assert znodes.read_topic(store, "a") == made
    grown = grow(store, made, 2)
    assert znodes.read_topic(store, "a") == grown
    assert [part.leader_epoch for part in grown.partitions] == [1, 1, 0, 0]
    assert [part.state_version for part in grown.partitions] == [1, 1, 0, 0]
    assert read_node(store, "a", 3) == PartitionNode(4, ((0, 0), (1, 0)))
    assert read_node(store, "a", 4) is None


def test_a_number_that_another_broker_took_meanwhile_is_not_given_twice(store: Store) -> None:
    slow = Interrupted(store)
    slow.before = [
        lambda: znodes.create_topic(store, topic("b", 3)),
        lambda: znodes.create_topic(store, topic("c")),
    ]
    assert epochs(znodes.create_topic(slow, topic("a", 2))) == [5, 6]  # type: ignore[arg-type]
    assert max_partition_epoch(store) == 6


def test_a_refused_write_takes_no_number(store: Store) -> None:
    made = znodes.create_topic(store, topic("a"))
    with pytest.raises(NodeExistsError):
        znodes.create_topic(store, topic("a"))
    with pytest.raises(NoNodeError):
        znodes.add_partitions(store, topic("b", 2), 1)
    assert znodes.delete_topic(store, topic("b")) == -1
    with pytest.raises(BadVersionError):
        multi_with_epochs(store, 1, lambda first: [Set("/brokers/topics/a", b"", 7)])
    assert max_partition_epoch(store) == 1
    assert znodes.read_topics(store) == [made]


# ---- expansions ----


def test_an_expansion_that_stopped_half_way_is_found_and_can_begin_again(store: Store) -> None:
    made = znodes.create_topic(store, topic("a", 2))
    znodes.create_topic(store, topic("other"))
    znodes.begin_expansion(store, made, [(1,), (1,)])
    assert znodes.read_expansions(store) == {"a": ((1,), (1,))}
    half = znodes.read_topic(store, "a")
    assert [part.leader_epoch for part in half.partitions] == [1, 1], "the new ones are not there"
    grown = grow(store, half, 2)
    assert znodes.read_expansions(store) == {}
    assert [part.leader_epoch for part in grown.partitions] == [2, 2, 0, 0]
    assert grown.partitions[3].prior_leader_epochs == ((0, 1), (1, 1))
    assert epochs(grown) == [1, 2, 4, 5]


def test_an_expansion_does_not_overwrite_a_state_that_changed_meanwhile(store: Store) -> None:
    made = znodes.create_topic(store, topic("a"))
    store.set("/brokers/topics/a/partitions/0/state", b"{}")
    with pytest.raises(BadVersionError):
        znodes.begin_expansion(store, made, [(1,)])
    assert znodes.read_expansions(store) == {}


def test_a_reassignment_under_way_survives_an_expansion(store: Store) -> None:
    moving = NEW._replace(replicas=(1, 2), adding=(2,), removing=(1,))
    made = znodes.create_topic(store, topic("a")._replace(partitions=(moving,)))
    assert znodes.read_topic(store, "a").partitions[0] == made.partitions[0]
    assert grow(store, made).partitions[0].adding == (2,)
    assert znodes.read_topic(store, "a").partitions[0].removing == (1,)


# ---- stores of earlier versions ----


def old_store(store: Store, topics: dict[str, int]) -> None:
    """Write topics as kstore did before it knew partition epochs."""
    for name in topics:
        znodes.create_topic(store, topic(name, topics[name]))
    for name, count in topics.items():
        for index in range(count):
            path = f"/brokers/topics/{name}/partitions/{index}"
            state = store.get(f"{path}/state")[0]
            store.delete(f"{path}/state")
            store.delete(path)
            store.multi([Create(path), Create(f"{path}/state", state)])
    store.delete(PARTITION_EPOCH)


def test_partitions_of_an_old_store_get_their_numbers(store: Store) -> None:
    old_store(store, {"b": 2, "a": 250})
    znodes.prepare(store)
    a, b = znodes.read_topics(store)
    assert epochs(a) == list(range(1, 251))
    assert epochs(b) == [251, 252]
    znodes.prepare(store)
    assert znodes.read_topics(store) == [a, b]
    assert epochs(znodes.create_topic(store, topic("c"))) == [253]


def test_an_upgrade_that_stopped_half_way_goes_on(store: Store) -> None:
    old_store(store, {"a": 250})
    stopping = Interrupted(store)

    def stop() -> None:
        raise KeyboardInterrupt

    stopping.before = [lambda: None, stop]
    with pytest.raises(KeyboardInterrupt):
        prepare_epochs(stopping)  # type: ignore[arg-type]
    prepare_epochs(store)
    assert epochs(znodes.read_topic(store, "a")) == list(range(1, 251))


def test_two_brokers_that_upgrade_at_one_time_agree(store: Store) -> None:
    old_store(store, {"a": 250, "b": 3})
    for moment in range(3):
        slow = Interrupted(store)
        slow.before = [lambda: None] * moment + [lambda: prepare_epochs(store)]
        prepare_epochs(slow)  # type: ignore[arg-type]
        assert epochs(znodes.read_topic(store, "a")) == list(range(1, 251))
        assert epochs(znodes.read_topic(store, "b")) == [251, 252, 253]
        for name, count in (("a", 250), ("b", 3)):
            for index in range(count):
                store.set(f"/brokers/topics/{name}/partitions/{index}", b"")
        store.delete(PARTITION_EPOCH)


def test_the_numbers_outlive_the_process(tmp_path) -> None:
    first = LmdbStore(tmp_path / "store")
    znodes.prepare(first)
    made = znodes.create_topic(first, topic("a", 2))
    first.close()
    second = LmdbStore(tmp_path / "store")
    znodes.prepare(second)
    assert znodes.read_topics(second) == [made]
    assert znodes.delete_topic(second, made) == 3
    second.close()


# ---- any order ----


class Numbers(RuleBasedStateMachine):
    """Brokers create, grow and delete topics, stop half way, and get in each other's way."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        znodes.prepare(self.store)
        self.topics: dict[str, TopicImage] = {}
        self.given: list[int] = []
        self.largest = 0

    names = st.sampled_from("abc")

    @rule(name=names, count=st.integers(1, 3), rival=st.booleans())
    def create(self, name: str, count: int, rival: bool) -> None:
        if name in self.topics:
            return
        slow = Interrupted(self.store)
        if rival:
            slow.before = [lambda: self.store.multi([Set(PARTITION_EPOCH, self._more(2))])]
        made = znodes.create_topic(slow, topic(name, count))  # type: ignore[arg-type]
        self._take(made.partitions)
        self.topics[name] = made

    @rule(name=names, count=st.integers(1, 2), stops=st.booleans())
    def grow(self, name: str, count: int, stops: bool) -> None:
        if name not in self.topics:
            return
        known = self.topics[name]
        unfinished = znodes.read_expansions(self.store).get(name)
        added = unfinished or [(1,)] * count
        bumped = znodes.begin_expansion(self.store, known, added)
        self.topics[name] = bumped
        if stops:
            assert len(znodes.read_expansions(self.store)[name]) == len(added)
            return
        grown = bumped._replace(partitions=bumped.partitions + (NEW,) * len(added))
        grown = znodes.add_partitions(self.store, grown, len(known.partitions))
        self._take(grown.partitions[len(known.partitions) :])
        for new in grown.partitions[len(known.partitions) :]:
            priors = dict(new.prior_leader_epochs)
            assert priors == {
                index: part.leader_epoch - 1 for index, part in enumerate(bumped.partitions)
            }
        self.topics[name] = grown

    @rule(name=names)
    def delete(self, name: str) -> None:
        known = self.topics.pop(name, None)
        if known is not None:
            deleted = znodes.delete_topic(self.store, known)
            assert deleted == self.largest + 1
            self.largest = deleted

    def _more(self, count: int) -> bytes:
        """Another broker takes some numbers."""
        self.largest = max_partition_epoch(self.store) + count
        return json.dumps({"version": 1, "partition_epoch": self.largest}).encode()

    def _take(self, partitions: Sequence[PartitionImage]) -> None:
        numbers = [partition.partition_epoch for partition in partitions]
        assert numbers == list(range(self.largest + 1, self.largest + 1 + len(numbers)))
        self.largest = numbers[-1]
        self.given += numbers

    @invariant()
    def the_store_has_what_was_given_out_and_no_number_twice(self) -> None:
        assert max_partition_epoch(self.store) == self.largest
        assert len(set(self.given)) == len(self.given)
        assert {image.name: image for image in znodes.read_topics(self.store)} == self.topics


TestNumbers = Numbers.TestCase
TestNumbers.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
