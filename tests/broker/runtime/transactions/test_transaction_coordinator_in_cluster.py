"""Transactions in a cluster: markers follow the decision, and the leaders of partitions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstore._fast.record.builder import build_batch
from kstore.broker.api.transactions.admin import handle_write_txn_markers
from kstore.broker.runtime.transactions.markers import Markers
from kstore.broker.runtime.transactions.transaction_coordinator import TransactionCoordinator
from kstore.broker.state.transactions.state import COMPLETE_COMMIT, PREPARE_COMMIT, TV_2
from kstore.broker.state.transactions.steps import Claim, Decision
from kstore.errors import ErrorCode, KafkaError, NetworkError
from tests.beside.waiting import reached, turns
from tests.broker.runtime.coordinators.cluster_host import ASKED, DATA, STATE, Host, run


async def coordinating(host: Host) -> TransactionCoordinator:
    host.lead(STATE)
    host.places[STATE].advance()
    coordinator = host.transactions()
    await coordinator.wait_loaded()
    return coordinator


async def ended(host: Host, coordinator: TransactionCoordinator) -> asyncio.Task[Decision]:
    """A transaction on t-0 whose commit was requested."""
    init = asyncio.ensure_future(_decided(coordinator.init_producer_id("tx", 60_000, None)))
    await turns()
    assert not init.done(), "the producer's epoch may still be lost"
    host.places[STATE].advance()
    claim = (await init).producer
    code = coordinator.add_partitions("tx", claim, frozenset({DATA}), TV_2)
    assert code == ErrorCode.NONE
    host.places[STATE].advance()
    ending = coordinator.end_transaction("tx", claim, TV_2, committed=True)
    return asyncio.ensure_future(_decided(ending))


async def _decided(decision: Any) -> Decision:
    if isinstance(decision, Decision):
        return decision
    return await decision


def state_of(coordinator: TransactionCoordinator) -> int:
    return coordinator.partition("tx").shard.transactions["tx"].state


def test_markers_are_written_once_the_decision_can_not_be_lost(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        coordinator = await coordinating(host)
        host.lead(DATA)
        ending = await ended(host, coordinator)
        await turns()
        assert host.places[DATA].log_end_offset == 0
        host.places[STATE].advance()
        await reached(lambda: host.places[DATA].log_end_offset)
        await turns()
        assert state_of(coordinator) == PREPARE_COMMIT, "the marker may still be lost"
        host.places[DATA].advance()
        await reached(lambda: state_of(coordinator) == COMPLETE_COMMIT)
        assert (await ending).error_code == ErrorCode.NONE

    run(tmp_path, story)


def test_markers_go_to_the_leader_until_one_takes_them(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        coordinator = await coordinating(host)
        host.answers = [
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            NetworkError("gone"),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NONE,
        ]
        ending = await ended(host, coordinator)
        host.places[STATE].advance()
        await reached(lambda: state_of(coordinator) == COMPLETE_COMMIT)
        assert (await ending).error_code == ErrorCode.NONE
        assert len(host.asked) == 4
        (marker,) = host.asked[-1].markers
        assert (marker.transaction_result, marker.coordinator_epoch) == (True, 1)

    run(tmp_path, story)


def test_a_late_marker_does_not_end_the_next_transaction(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        coordinator = await coordinating(host)
        host.answers = [NetworkError("no answer"), ErrorCode.NONE]
        await ended(host, coordinator)
        host.places[STATE].advance()
        await reached(lambda: state_of(coordinator) == COMPLETE_COMMIT)
        host.lead(DATA)
        batch = build_batch(
            [(None, b"next")], producer_id=7, producer_epoch=1, base_sequence=0, transactional=True
        )
        host.places[DATA].append_batches(batch)
        markers = Markers(host, host, host.writer, lambda *ended: None)
        parts: Any = SimpleNamespace(markers=lambda: markers)
        second = ASKED._replace(api_version=2)
        answer = await handle_write_txn_markers(parts, host.asked[0], second)
        ((row,),) = [topic.partitions for topic in answer.markers[0].topics]
        assert row.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert host.places[DATA].log_end_offset == 1

    run(tmp_path, story)


def test_a_partition_that_is_gone_needs_no_marker(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        coordinator = await coordinating(host)
        await ended(host, coordinator)
        host.image = host.image.without_topics(DATA.topic)
        host.places[STATE].advance()
        await asyncio.sleep(0.15)
        assert state_of(coordinator) == PREPARE_COMMIT, "it is only not known here"
        host.stored = False
        await reached(lambda: state_of(coordinator) == COMPLETE_COMMIT)

    run(tmp_path, story)


def test_the_next_coordinator_completes_what_is_prepared(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        coordinator = await coordinating(host)
        ending = await ended(host, coordinator)
        await turns()
        host.follow(STATE)
        with pytest.raises(KafkaError) as refused:
            await ending
        assert refused.value.code == ErrorCode.NOT_COORDINATOR
        assert host.asked == [], "the decision could still have been lost"
        host.answers = [ErrorCode.NONE]
        host.lead(STATE)
        host.places[STATE].advance()
        await coordinator.wait_loaded()
        await reached(lambda: state_of(coordinator) == COMPLETE_COMMIT)
        assert host.asked[0].markers[0].coordinator_epoch == 2
        host.places[STATE].advance()
        again = coordinator.end_transaction("tx", Claim(7, 0), TV_2, committed=True)
        assert await _decided(again) == Decision(ErrorCode.NONE, None, Claim(7, 1))

    run(tmp_path, story)
