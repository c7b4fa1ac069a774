"""Probes of transactions: the APIs of the coordinator in order and out of order, transactional
writes with and without a transaction, offsets in transactions, and what readers see. Kafka writes
the markers after its response to EndTxn, so a story waits until a transaction is complete.
"""

from __future__ import annotations

from typing import Any

from kstore.protocol.schema import Message
from tests.conformance.probes.batches import Flaws, batch
from tests.conformance.probes.story import Peer, Step, Story, case
from tests.conformance.probes.topics import create
from tests.plain_messages import Ask
from tests.record_requests import (
    add_request,
    fetch_part,
    fetch_request,
    list_request,
    offsets_request,
    produce_request,
    producer_fields,
)

TIMEOUT_MS = 60_000
STARTING = {14, 15, 16}  # the coordinator is loading, not available, not here
CONCURRENT = 51
ADDING_PRODUCE = 12
TRANSACTIONAL = 0x10
UNKNOWN_PRODUCER = 987_654_321


def _init(name: str, **fields: Any) -> Step:
    """A producer id, when the coordinator is ready and no transaction is in the way."""
    said = {"transactional_id": name, "transaction_timeout_ms": TIMEOUT_MS, **fields}
    busy = STARTING | {CONCURRENT}
    return Step(Ask.InitProducerId(**said), until=lambda answer: answer.error_code not in busy)


def _completed(name: str) -> Step:
    """The state, when no marker is missing."""
    return Step(
        Ask.DescribeTransactions(transactional_ids=[name]),
        until=lambda answer: "Prepare" not in answer.transaction_states[0].transaction_state,
    )


def _end(name: str, who: Any, *, committed: bool, epoch: int = 0) -> Message:
    return Ask.EndTxn(**producer_fields(name, who, epoch), committed=committed)


def _add(name: str, who: Any, topics: dict[str, list[int]], epoch: int = 0) -> Step:
    return Step(add_request(name, who, topics, epoch), version=3)


def _write(
    name: str | None, topic: str, who: Any, sequence: int, *, partition: int = 0, epoch: int = 0
) -> Message:
    said = producer_fields("", who, epoch)
    del said["transactional_id"]
    records = batch([b"v"], Flaws(attributes=TRANSACTIONAL, base_sequence=sequence, **said))
    return produce_request(
        topic, records, first=partition, acks=-1, timeout_ms=10_000, transactional_id=name
    )


def _read(topic: str) -> Step:
    request = fetch_request(topic, fetch_part(), min_bytes=0, max_bytes=1 << 20, isolation_level=1)
    return Step(request, version=12)


# ---- stories ----


@case("InitProducerId, transactional", 22)
def _init_producer_id(peer: Peer, version: int) -> Story:
    name = f"probe-txn-init-{version}"
    who = yield _init(name)
    for timeout_ms in (0, -1, 900_001, 900_000):
        yield _init(name, transaction_timeout_ms=timeout_ms)
    yield _init("")
    if version < 3:
        return
    who = yield _init(name)
    pair = {"producer_id": who.producer_id, "producer_epoch": who.producer_epoch}
    yield _init(name, **pair)
    yield _init(name, **pair)  # a repetition
    yield _init(name, **pair | {"producer_epoch": who.producer_epoch + 7})
    yield _init(name, **pair | {"producer_id": UNKNOWN_PRODUCER})
    yield _init(name, producer_id=who.producer_id)
    yield _init(name, producer_epoch=who.producer_epoch)
    yield _init(name)
    yield _init(name, **pair)  # fenced by the one before
    yield _init(f"{name}-new", producer_id=5, producer_epoch=3)


@case("Transactions: fencing", 0, 9, 12)
def _fencing(peer: Peer, version: int) -> Story:
    name, topic = f"probe-txn-fence-{version}", f"probe-txn-fence-{version}"
    yield create(topic)
    who = yield _init(name)
    yield _add(name, who, {topic: [0]})
    ongoing = Ask.InitProducerId(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS)
    yield ongoing
    yield _completed(name)
    yield _init(name)
    yield _add(name, who, {topic: [0]})
    yield _end(name, who, committed=True)
    yield Step(_write(name, topic, who, 0), version=version)


@case("AddPartitionsToTxn", 24)
def _add_partitions(peer: Peer, version: int) -> Story:
    name, topic = f"probe-txn-add-{version}", f"probe-txn-add-{version}"
    yield create(topic, 2)
    who = yield _init(name)
    wrong_id = type(who)(producer_id=UNKNOWN_PRODUCER, producer_epoch=0)

    def ask(asked: str, who: Any, partitions: list[int], epoch: int = 0, **more: Any) -> Any:
        if version < 4:
            return _add(asked, who, {topic: partitions}, epoch)._replace(version=version)
        topics = [{"name": topic, "partitions": partitions}]
        row = producer_fields(asked, who, epoch) | {"topics": topics} | more
        return Ask.AddPartitionsToTxn(transactions=[row])

    yield ask("", who, [0])
    yield ask("probe-txn-nobody", who, [0])
    yield ask(name, wrong_id, [0])
    yield ask(name, who, [0], epoch=1)
    yield ask(name, who, [0], epoch=-1)
    yield ask(name, who, [0, 9])
    yield ask(name, who, [])
    yield Ask.DescribeTransactions(transactional_ids=[name])
    yield ask(name, who, [0])
    yield ask(name, who, [0])
    yield ask(name, who, [1])
    yield Ask.DescribeTransactions(transactional_ids=[name, "probe-txn-nobody", ""])
    if version >= 4:
        yield ask(name, who, [0, 1], verify_only=True)
        yield ask(name, who, [0], epoch=1, verify_only=True)
        yield ask("probe-txn-nobody", who, [0], verify_only=True)
        yield ask(name, who, [0, 9], verify_only=True)
    yield Step(_end(name, who, committed=True), version=4)
    yield _completed(name)
    yield ask(name, who, [1])
    if version >= 4:
        yield ask(name, who, [0, 1], verify_only=True)
    yield Step(_end(name, who, committed=False), version=4)
    yield _completed(name)


@case("AddOffsetsToTxn", 25)
def _add_offsets(peer: Peer, version: int) -> Story:
    name = f"probe-txn-offsets-{version}"
    who = yield _init(name)

    def ask(asked: str, epoch: int = 0) -> Message:
        said = producer_fields(asked, who, epoch)
        return Ask.AddOffsetsToTxn(**said, group_id="probe-txn-group")

    yield ask("")
    yield ask("probe-txn-nobody")
    yield ask(name, 1)
    yield ask(name)
    yield ask(name)
    yield Ask.DescribeTransactions(transactional_ids=[name])
    yield Step(_end(name, who, committed=True), version=4)
    yield _completed(name)


@case("EndTxn", 26)
def _end_txn(peer: Peer, version: int) -> Story:
    topic = f"probe-txn-end-{version}"
    yield create(topic)
    for name in ("", "probe-txn-nobody"):
        yield Ask.EndTxn(transactional_id=name, producer_id=1, producer_epoch=0, committed=True)
    for first in (True, False):
        name = f"probe-txn-end-{version}-{first}"
        who = yield _init(name)
        yield _end(name, who, committed=True)
        yield _end(name, who, committed=True, epoch=1)
        yield _end(name, who, committed=True, epoch=-1)
        yield _add(name, who, {topic: [0]})
        yield _end(name, who, committed=first, epoch=1)
        answer = yield _end(name, who, committed=first)
        yield _completed(name)
        for committed in (True, False):
            yield _end(name, who, committed=committed)  # a repetition, or its opposite
        yield _completed(name)
        if version < 5 or answer is None or answer.error_code:
            continue
        yield _end(name, answer, committed=True)
        again = yield _end(name, answer, committed=False)
        yield _completed(name)
        yield _end(name, answer, committed=False)
        yield _end(name, again, committed=False, epoch=5)
        yield _completed(name)


@case("EndTxn of what was aborted", 26)
def _end_txn_after_abort(peer: Peer, version: int) -> Story:
    """Another producer begins, which aborts the transaction; then the first producer ends it."""
    topic, name = f"probe-txn-abort-{version}", f"probe-txn-abort-{version}"
    yield create(topic)
    who = yield _init(name)
    yield _add(name, who, {topic: [0]})
    begin = Ask.InitProducerId(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS)
    yield Step(begin, version=5)
    yield _completed(name)
    for committed in (False, True, False):
        yield _end(name, who, committed=committed)
    yield _init(name)
    yield _end(name, who, committed=False)


@case("TxnOffsetCommit", 28)
def _txn_offset_commit(peer: Peer, version: int) -> Story:
    name, group = f"probe-txn-commit-{version}", f"probe-txn-commit-group-{version}"
    topic = f"probe-txn-commit-{version}"
    yield create(topic, 2)
    who = yield _init(name)

    def ask(offset: int, *partitions: int, **more: Any) -> Message:
        rows = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": "m"}
            for index in partitions
        ]
        said = producer_fields(name, who) | {"topics": [{"name": topic, "partitions": rows}]}
        return Ask.TxnOffsetCommit(group_id=group, **(said | more))

    def fetch(*, stable: bool) -> Step:
        return Step(offsets_request(topic, 0, 1, group=group, require_stable=stable), version=8)

    yield ask(5, 0)  # outside a transaction, but not from version 5
    yield fetch(stable=True)
    offsets = Ask.AddOffsetsToTxn(**producer_fields(name, who), group_id=group)
    yield offsets
    yield ask(6, 0, 9)
    yield ask(6, 7, 9)
    yield ask(7, 1, producer_epoch=who.producer_epoch + 1)
    yield ask(7, 1, producer_id=UNKNOWN_PRODUCER)
    yield ask(7, 1, transactional_id="probe-txn-nobody")
    yield ask(7, 1, transactional_id="")
    if version >= 3:
        yield ask(7, 1, generation_id=3)
        yield ask(7, 1, generation_id=3, member_id="nobody")
        yield ask(7, 1, member_id="nobody")
    yield fetch(stable=True)
    yield fetch(stable=False)
    yield Step(_end(name, who, committed=False), version=4)
    yield _completed(name)
    yield fetch(stable=True)
    yield offsets
    yield ask(8, 0, 1)
    yield Step(_end(name, who, committed=True), version=4)
    yield _completed(name)
    yield fetch(stable=True)
    yield ask(9, 0)


@case("Produce, transactional", 0, 10)
def _produce(peer: Peer, version: int) -> Story:
    if version >= 13:
        return  # by topic id: the same code
    name, topic = f"probe-txn-produce-{version}", f"probe-txn-produce-{version}"
    yield create(topic, 2)
    who = yield _init(name)
    yield _write(None, topic, who, 0)
    yield _write("probe-txn-nobody", topic, who, 0)
    yield _write(name, topic, who, 0, epoch=1)
    yield _write(name, topic, who, 3, partition=1)
    yield _write(name, topic, who, 0)
    if version < ADDING_PRODUCE:
        yield _add(name, who, {topic: [0]})
        yield _write(name, topic, who, 0)
    yield _write(name, topic, who, 1)
    yield _write(name, topic, who, 1)  # a duplicate
    yield _write(name, topic, who, 5)
    yield _write(name, topic, who, 2, epoch=1)
    yield Ask.DescribeTransactions(transactional_ids=[name])
    yield _read(topic)
    for isolation_level in (0, 1):
        yield list_request(topic, isolation_level=isolation_level)
    end_version = 5 if version >= ADDING_PRODUCE else 4
    ended = yield Step(_end(name, who, committed=False), version=end_version)
    yield _completed(name)
    yield _read(topic)
    yield list_request(topic, isolation_level=1)
    yield _write(name, topic, who, 2)  # after the end
    if version >= ADDING_PRODUCE and ended is not None:
        yield _write(name, topic, ended, 1)
        yield _write(name, topic, ended, 0)
        yield Step(_end(name, ended, committed=True), version=end_version)
        yield _completed(name)
        yield _read(topic)
    yield Ask.DescribeProducers(topics=[{"name": topic, "partition_indexes": [0, 1]}])


@case("WriteTxnMarkers", 27)
def _markers(peer: Peer, version: int) -> Story:
    name, topic = f"probe-txn-marker-{version}", f"probe-txn-marker-{version}"
    yield create(topic)
    yield _init(name)
    who = yield _init(name)

    def marker(
        *, epoch: int = 0, coordinator_epoch: int = 0, level: int = 0, at: str = topic
    ) -> Any:
        row = {
            "producer_id": who.producer_id,
            "producer_epoch": who.producer_epoch + epoch,
            "transaction_result": False,
            "topics": [{"name": at, "partition_indexes": [0, 7]}],
            "coordinator_epoch": coordinator_epoch,
            "transaction_version": level if version >= 2 else 0,
        }
        return Ask.WriteTxnMarkers(markers=[row])

    yield Ask.WriteTxnMarkers(markers=[])
    yield marker(at="probe-txn-absent")
    yield Step(_write(name, topic, who, 0), version=ADDING_PRODUCE)
    describe = Ask.DescribeProducers(topics=[{"name": topic, "partition_indexes": [0, 7]}])
    yield describe
    yield marker(epoch=-1)
    yield marker(level=2)
    yield marker(coordinator_epoch=5, epoch=1, level=2)
    yield marker(coordinator_epoch=5, epoch=1, level=2)  # a repetition
    yield marker(coordinator_epoch=3, epoch=1)
    yield describe
    yield _read(topic)


@case("DescribeProducers", 61)
def _describe_producers(peer: Peer, version: int) -> Story:
    yield Ask.DescribeProducers(topics=[])
    for topic in ("probe-txn-absent", "bad name", ""):
        yield Ask.DescribeProducers(topics=[{"name": topic, "partition_indexes": [0]}])
    yield Ask.DescribeProducers(topics=[{"name": "probe-txn-absent"}])


@case("ListTransactions", 66)
def _list_transactions(peer: Peer, version: int) -> Story:
    name, topic = f"probe-txn-list-{version}", f"probe-txn-list-{version}"
    yield create(topic)
    for index in range(2):
        who = yield _init(f"{name}-{index}")
    yield Step(_write(f"{name}-1", topic, who, 0), version=ADDING_PRODUCE)

    def ask(**fields: Any) -> Message:
        return Ask.ListTransactions(**{"producer_id_filters": [who.producer_id], **fields})

    yield ask()
    yield ask(state_filters=["Ongoing"])
    yield ask(state_filters=["Empty", "nonsense", "Dead"])
    yield ask(producer_id_filters=[UNKNOWN_PRODUCER])
    if version >= 1:
        yield ask(duration_filter=0)
        yield ask(duration_filter=3_600_000)
    if version >= 2:
        for pattern in ("", name, f"{name}.*", f"{name}-[01]", "[", "a{2,1}"):
            yield ask(producer_id_filters=[], transactional_id_pattern=pattern or f"{name}-1")
        yield ask(transactional_id_pattern="")
    yield Step(_end(f"{name}-1", who, committed=True), version=5)
    yield _completed(f"{name}-1")
    yield ask(producer_id_filters=[], state_filters=["nonsense"])
