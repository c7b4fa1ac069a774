"""Producer ids: no id is assigned twice, by any broker and after any restart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from kstore.broker.api import RequestContext
from kstore.broker.api.transactions.producer_ids import handle_init_producer_id
from kstore.broker.coordination.memory_store import MemoryStore
from kstore.broker.coordination.partition_nodes import TOPICS
from kstore.broker.coordination.store import Create, Store, StoreError
from kstore.broker.runtime.lazy import Lazy
from kstore.broker.runtime.transactions import producer_ids
from kstore.broker.runtime.transactions.producer_ids import (
    BLOCK_SIZE,
    LEFT_OUT,
    MOST_BY_CLOCK,
    NODE,
    PER_SECOND,
    START_S,
    ProducerIds,
    ids_until_now,
    skip_blocks,
    take_block,
)
from kstore.errors import ErrorCode
from kstore.protocol.transactions.producer_ids import InitProducerIdRequest, InitProducerIdResponse

ASKED = RequestContext(22, 6, 0, "client", "127.0.0.1", "c", "PLAINTEXT", "User:ANONYMOUS")


async def in_a_thread(call: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(call)


class Host:
    def __init__(self, store: Store) -> None:
        self.authorizer = None
        self.store = store
        self.producer_ids = Lazy(lambda: ProducerIds(store, 1, in_a_thread))


def ask(host: Host, **fields: Any) -> InitProducerIdResponse:
    request = InitProducerIdRequest(**{"transactional_id": None, **fields})
    return asyncio.run(handle_init_producer_id(host, request, ASKED))  # type: ignore[arg-type]


@pytest.fixture
def without_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is before 2025."""
    monkeypatch.setattr(producer_ids, "START_S", 1 << 40)


@pytest.mark.usefixtures("without_clock")
def test_blocks_follow_each_other_and_are_written_as_kafka_did() -> None:
    store = MemoryStore()
    assert [take_block(store, broker).first for broker in (1, 2, 1)] == [0, 1000, 2000]
    assert json.loads(store.get(NODE)[0]) == {
        "version": 1,
        "broker": 1,
        "block_start": "2000",
        "block_end": "2999",
    }


@pytest.mark.usefixtures("without_clock")
def test_a_block_that_another_broker_takes_at_the_same_time_is_left_to_it() -> None:
    store = MemoryStore()
    take_block(store, 1)
    rival = store.new_session()

    class Racing(MemoryStore):
        raced = False

        def get(self, path: str) -> tuple[bytes, int]:
            found = store.get(path)
            if not self.raced:
                self.raced = True
                assert take_block(rival, 2) == (1000, 0)
            return found

        def set(self, path: str, data: bytes, version: int = -1) -> int:
            return store.set(path, data, version)

    assert take_block(Racing(), 1) == (2000, 0)


@pytest.mark.usefixtures("without_clock")
def test_ids_are_handed_out_in_order_over_blocks_and_at_once() -> None:
    async def story() -> None:
        ids = ProducerIds(MemoryStore(), 1, in_a_thread)
        found = await asyncio.gather(*(ids.next_id() for _ in range(1500)))
        assert sorted(found) == list(range(1500))

    asyncio.run(story())


def test_after_a_restart_no_id_is_given_again() -> None:
    store = MemoryStore()
    assert ask(Host(store)) == InitProducerIdResponse(producer_id=0, producer_epoch=0)
    before = ids_until_now()
    assert before <= ask(Host(store)).producer_id <= ids_until_now()


@pytest.mark.parametrize("how", ["continues", "restarts"])
def test_a_broker_that_does_not_notice_an_older_store_gives_no_id_again(how: str) -> None:
    """It has no log with later leader epochs, and a restored ZooKeeper can continue its session."""
    store = MemoryStore()
    broker, other = ProducerIds(store, 1, in_a_thread), ProducerIds(store, 2, in_a_thread)

    async def story() -> list[int]:
        await broker.next_id()
        copy, _ = store.get(NODE)
        given = [await other.next_id()]
        store.set(NODE, copy)  # the store is restored
        found = broker if how == "continues" else ProducerIds(store, 1, in_a_thread)
        return given + [await found.next_id() for _ in range(2 * BLOCK_SIZE)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer_ids, "ids_until_now", count(10_000, BLOCK_SIZE).__next__)
        given = asyncio.run(story())
    assert len(given) == len(set(given))


def test_a_copy_from_before_the_first_block_gives_no_id_again() -> None:
    """The first block of a cluster begins at 0 only if the cluster has no topics."""
    store = MemoryStore()
    store.multi([Create("/brokers"), Create(TOPICS)])
    assert take_block(store, 1).first == 0
    store.create(f"{TOPICS}/t")
    store.delete(NODE)  # the store is restored
    before = ids_until_now()
    assert before <= take_block(store, 1).first <= ids_until_now()


@pytest.mark.parametrize("year", [1970, 2024, 2060, 9999, 10**9])
def test_a_clock_that_is_certainly_wrong_is_ignored(
    year: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: (year - 1970) * 365.2425 * 86_400)
    store = MemoryStore()
    assert [take_block(store, broker).first for broker in (1, 2, 1)] == [0, 1000, 2000]


def test_ids_by_the_clock_are_those_of_this_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target of exact copies has its own ids from 2^40 on."""
    monkeypatch.setattr("time.time", lambda: START_S + MOST_BY_CLOCK / PER_SECOND)
    store = MemoryStore()
    assert [take_block(store, 1).first for _ in range(2)] == [0, MOST_BY_CLOCK]
    assert MOST_BY_CLOCK < (1 << 40) - PER_SECOND * 365 * 86_400  # another year's
    skip_blocks(store, 1, 1 << 40)
    assert take_block(store, 1).first == (1 << 40) + MOST_BY_CLOCK


def test_after_an_older_store_no_id_is_given_again() -> None:
    """Ids after the copy were given to producers whose batches are in the logs."""
    store = MemoryStore()
    broker, other = ProducerIds(store, 1, in_a_thread), ProducerIds(store, 2, in_a_thread)

    async def story() -> list[int]:
        found = [await broker.next_id()]
        before = ids_until_now()
        for _ in range(2):  # of each role that is refused
            await broker.note_older_store()
        found.append(await broker.next_id())
        assert before <= found[1] <= ids_until_now()
        return [*found, await broker.next_id(), await other.next_id()]

    first, far, next_one, others = asyncio.run(story())
    assert (first, next_one) == (0, far + 1)
    assert others >= far + BLOCK_SIZE


def test_the_same_copy_restored_twice_gives_no_id_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a broker that was there both times."""
    monkeypatch.setattr(producer_ids, "AGAIN_S", 0.0)
    store = MemoryStore()
    ids = ProducerIds(store, 1, in_a_thread)

    async def story() -> list[int]:
        await ids.next_id()
        copy, _ = store.get(NODE)
        found = []
        for seconds in (1000, 1001):
            store.set(NODE, copy)
            monkeypatch.setattr(producer_ids, "ids_until_now", lambda s=seconds: s * PER_SECOND)
            await ids.note_older_store()
            found += [await ids.next_id() for _ in range(PER_SECOND)]
        return found

    monkeypatch.setattr(producer_ids, "LEFT_OUT", 1)
    found = asyncio.run(story())
    assert len(set(found)) == len(found)


def test_ids_above_the_clocks_are_left_out_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock may be wrong, or many brokers may have taken blocks at once."""
    store = MemoryStore()
    monkeypatch.setattr(producer_ids, "ids_until_now", lambda: 5000)
    skip_blocks(store, 1, 1 << 40)
    assert take_block(store, 1, LEFT_OUT).first == (1 << 40) + LEFT_OUT
    assert take_block(store, 1, LEFT_OUT).first == (1 << 40) + 2 * LEFT_OUT + BLOCK_SIZE


def test_a_block_that_is_fetched_while_the_older_store_is_noticed_is_not_used() -> None:
    store = MemoryStore()
    ids = ProducerIds(store, 1, in_a_thread)

    async def story() -> int:
        taking = asyncio.ensure_future(ids.next_id())
        await asyncio.sleep(0)  # it has begun
        await ids.note_older_store()
        return await taking

    assert asyncio.run(story()) >= ids_until_now() - 600 * PER_SECOND


@pytest.mark.usefixtures("without_clock")
def test_each_notice_counts_while_a_block_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is restored a second time while the block after the first time is fetched."""
    monkeypatch.setattr(producer_ids, "AGAIN_S", 0.0)
    store = MemoryStore()
    restored = False

    async def restore_once(call: Callable[[], Any]) -> Any:
        nonlocal restored
        copy, _ = store.get(NODE)
        found = call()
        if not restored:
            restored = True
            store.set(NODE, copy)
            again.append(asyncio.ensure_future(ids.note_older_store()))
            await asyncio.sleep(0)
        return found

    again: list[asyncio.Future[None]] = []
    ids = ProducerIds(store, 1, restore_once)

    async def story() -> int:
        await ids.note_older_store()
        await asyncio.gather(*again)
        return await ids.next_id()

    take_block(store, 1)
    first = asyncio.run(story())
    assert first >= BLOCK_SIZE + LEFT_OUT
    assert take_block(store, 2).first == first + BLOCK_SIZE


def test_ids_are_left_out_later_if_the_store_cannot_be_reached() -> None:
    class Away(MemoryStore):
        away = True

        def get(self, path: str) -> Any:
            if self.away:
                raise StoreError("away")
            return super().get(path)

    store = Away()
    ids = ProducerIds(store, 1, in_a_thread)

    async def story() -> int:
        await ids.note_older_store()
        store.away = False
        return await ids.next_id()

    assert asyncio.run(story()) >= ids_until_now() - 600 * PER_SECOND


def test_ids_that_are_left_to_another_cluster_are_never_given_out_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer_ids, "ids_until_now", lambda: 0)
    store = MemoryStore()
    first, other = Host(store), Host(store.new_session())
    assert (ask(first).producer_id, ask(other).producer_id) == (0, 1000)
    assert ask(first, least_producer_id=1 << 40).error_code == 0
    assert ask(other).producer_id == 1001  # it has not been asked for higher ids yet
    assert ask(first).producer_id == 1 << 40
    assert ask(other, least_producer_id=1 << 40).error_code == 0
    assert ask(other).producer_id == (1 << 40) + 1000
    ask(other, least_producer_id=5000)  # a smaller one changes nothing
    assert ask(other).producer_id == (1 << 40) + 1001
    late = ProducerIds(store, 3, in_a_thread)
    asyncio.run(late.prepare())
    assert (late.offered, late.least) == ((1 << 40) + 2000, 1 << 40)


@pytest.mark.parametrize(
    ("fields", "error_code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_refused(fields: dict[str, Any], error_code: int) -> None:
    store = MemoryStore()
    response = ask(Host(store), **fields)
    assert response == InitProducerIdResponse(error_code=error_code, producer_epoch=-1)
    assert not store.exists(NODE)


def test_an_idempotent_producer_that_starts_over_gets_a_new_id() -> None:
    host = Host(MemoryStore())
    host.store.multi([Create("/unrelated")])
    first = ask(host)
    again = ask(host, producer_id=first.producer_id, producer_epoch=first.producer_epoch)
    assert (again.producer_id != first.producer_id, again.producer_epoch) == (True, 0)
