"""Simulated transactional copies: consume, transform, produce and commit the offset in one
transaction; start over after anything unclear.
"""

from __future__ import annotations

from kstore.errors import ErrorCode
from kstore.protocol.logs.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kstore.protocol.transactions.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kstore.record import build_batch
from tests.sim.history import History, Place, Row
from tests.sim.workloads.client import Client, UnansweredError
from tests.sim.workloads.committing import committed_offset
from tests.sim.workloads.producing import init_producer
from tests.sim.workloads.reading import fetch, rows_of

__all__ = ["SEPARATOR", "TransactionalCopy"]

SEPARATOR = b"|"
"""Between what was read and the name of the attempt that wrote it."""
MOST_RECORDS = 12
TRIES = 4
CONFUSED = {
    ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}  # fmt: skip
"""Asked again, the same may be answered otherwise."""


class _Failed(Exception):  # noqa: N818 - it is no error: the transaction is given up
    """The transaction is given up."""


class TransactionalCopy:
    """Copies one partition to a topic until it is told to stop and has everything."""

    def __init__(
        self, client: Client, history: History, source: Place, target: str, partitions: int
    ) -> None:
        self.client = client
        self.history = history
        self.source = source
        self.stopping = False
        self.goal = -1
        """The source's end; the copy ends once it has committed it."""
        self.end = -1
        """Where the copy has ended: at its goal, or behind it where the leader that told the goal
        had not heard yet of all that is committed.
        """
        self._target = target
        self._partitions = partitions
        self._name = f"copy-{source.partition}"
        self._id = (-1, -1)
        self._attempts = 0
        self._first_version = client.random.random() < 0.5
        """Whether it speaks the older transaction protocol, in which partitions are added first."""

    async def run(self) -> None:
        """Copy."""
        client = self.client
        while True:
            self._id = await init_producer(client, self._name)
            position = max(await committed_offset(client, self._name, self.source), 0)
            try:
                while True:
                    if 0 <= self.goal <= position:
                        self.end = position
                        return
                    position = await self._copy_some(position)
            except (_Failed, UnansweredError):
                await client.pause()

    async def _copy_some(self, position: int) -> int:
        answer = await fetch(self.client, self.source, position, isolation=1)
        if answer.error_code != ErrorCode.NONE:
            await self.client.pause()
            return position
        rows, after = rows_of(answer, position)
        if self.goal < 0:
            rows = rows[: self.client.random.randint(1, MOST_RECORDS)]
        if not rows:
            return after
        after = rows[-1].offset + 1
        self._attempts += 1
        name = f"{self._name}#{self._attempts}"
        values = [row.value + SEPARATOR + name.encode() for row in rows]
        outcome = "aborted"
        try:
            await self._write(rows, values)
            await self._commit_offset(after)
            commits = self.client.random.random() < 0.85
            outcome = "unknown" if commits else "aborted"
            await self._end(commits)
            outcome = "committed" if commits else "aborted"
        finally:
            self.history.transaction(name, values, outcome)
        await self.client.pause(0.0, 0.04)
        if commits:
            return after
        return max(await committed_offset(self.client, self._name, self.source), 0)

    async def _write(self, rows: list[Row], values: list[bytes]) -> None:
        parts: dict[int, list[bytes]] = {}
        for row, value in zip(rows, values, strict=True):
            parts.setdefault(row.offset % self._partitions, []).append(value)
        if self._first_version:
            await self._ask_coordinator(
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self._name,
                    v3_and_below_producer_id=self._id[0],
                    v3_and_below_producer_epoch=self._id[1],
                    v3_and_below_topics=[
                        AddPartitionsToTxnTopic(name=self._target, partitions=sorted(parts))
                    ],
                ),
                3,
            )
        for index, some in sorted(parts.items()):
            await self._produce(index, some)

    async def _produce(self, index: int, values: list[bytes]) -> None:
        client, place = self.client, Place(self._target, index)
        batch = build_batch(
            [(None, value) for value in values],
            timestamp=client.life.now_ms(),
            producer_id=self._id[0],
            producer_epoch=self._id[1],
            base_sequence=self._sequence(index, len(values)),
            transactional=True,
        )
        request = ProduceRequest(
            transactional_id=self._name,
            acks=-1,
            timeout_ms=3000,
            topic_data=[
                TopicProduceData(
                    name=self._target,
                    partition_data=[PartitionProduceData(index=index, records=batch)],
                )
            ],
        )
        for _ in range(TRIES):
            leader = await client.leader(*place)
            answer = await client.ask(leader, request, newest=11 if self._first_version else 12)
            code = answer.responses[0].partition_responses[0].error_code
            if code == ErrorCode.NONE:
                return
            if code not in CONFUSED:
                break
            client.forget_leader(*place)
            await client.pause()
        raise _Failed

    def _sequence(self, index: int, count: int) -> int:
        """Sequence numbers begin anew with each epoch."""
        if getattr(self, "_sequences_of", None) != self._id:
            self._sequences_of = self._id
            self._sequences: dict[int, int] = {}
        first = self._sequences.get(index, 0)
        self._sequences[index] = first + count
        return first

    async def _commit_offset(self, offset: int) -> None:
        if self._first_version:
            await self._ask_coordinator(
                AddOffsetsToTxnRequest(
                    transactional_id=self._name,
                    producer_id=self._id[0],
                    producer_epoch=self._id[1],
                    group_id=self._name,
                ),
                3,
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=self._name,
            producer_id=self._id[0],
            producer_epoch=self._id[1],
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=self.source.topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=self.source.partition, committed_offset=offset
                        )
                    ],
                )
            ],
        )
        for _ in range(TRIES):
            node = await self.client.coordinator(self._name, transactional=False)
            answer = await self.client.ask(node, request, newest=4 if self._first_version else 5)
            code = answer.topics[0].partitions[0].error_code
            if code == ErrorCode.NONE:
                return
            if code not in CONFUSED:
                break
            await self.client.pause()
        raise _Failed

    async def _end(self, commits: bool) -> None:
        answer = await self._ask_coordinator(
            EndTxnRequest(
                transactional_id=self._name,
                producer_id=self._id[0],
                producer_epoch=self._id[1],
                committed=commits,
            ),
            4 if self._first_version else 5,
        )
        if not self._first_version:
            self._id = (answer.producer_id, answer.producer_epoch)

    async def _ask_coordinator(self, request: object, newest: int) -> object:
        for _ in range(TRIES):
            node = await self.client.coordinator(self._name, transactional=True)
            answer = await self.client.ask(node, request, newest=newest)  # type: ignore[arg-type]
            code = _code_of(answer)
            if code == ErrorCode.NONE:
                return answer
            if code not in CONFUSED:
                break
            await self.client.pause()
        raise _Failed


def _code_of(answer: object) -> int:
    """The error of an answer, or of its first row."""
    rows = getattr(answer, "results_by_topic_v3_and_below", None)
    if rows:
        return int(rows[0].results_by_partition[0].partition_error_code)
    return int(answer.error_code)  # type: ignore[attr-defined]
