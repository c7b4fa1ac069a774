"""Simulated transactional producers: their requests to the coordinator and to the leaders of
partitions. Subclasses decide what is written and when.
"""

from __future__ import annotations

from typing import Any

from kstore.errors import ErrorCode
from kstore.protocol.schema import Message
from kstore.record import build_batch
from tests.plain_messages import Ask
from tests.record_requests import only, produce_request
from tests.sim.history import Place
from tests.sim.workloads.client import Client
from tests.sim.workloads.producing import init_producer

TRIES = 4
CONFUSED = {
    ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}  # fmt: skip
"""Asked again, the same may be answered otherwise."""


class FailedTransaction(Exception):  # noqa: N818 - it is no error: the transaction is given up
    """The transaction is abandoned."""


class Transactional:
    """A producer with a transactional id."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self._id = (-1, -1)
        self._first_version = client.random.random() < 0.5
        """Whether it speaks the older transaction protocol, in which partitions are added first."""

    @property
    def fields(self) -> dict[str, Any]:
        """The producer's identity in its requests."""
        producer_id, epoch = self._id
        who = {"producer_id": producer_id, "producer_epoch": epoch}
        return {"transactional_id": self.name, **who}

    async def _begin(self) -> None:
        self._id = await init_producer(self.client, self.name)

    async def _write(self, topic: str, parts: dict[int, list[bytes]]) -> None:
        """The values of each partition."""
        if self._first_version:
            said = self.fields | {"topics": [{"name": topic, "partitions": sorted(parts)}]}
            request = Ask.AddPartitionsToTxn(**{f"v3_and_below_{key}": said[key] for key in said})
            await self._ask_coordinator(request, 3)
        for index, some in sorted(parts.items()):
            await self._produce(Place(topic, index), some)

    async def _produce(self, place: Place, values: list[bytes]) -> None:
        client = self.client
        batch = build_batch(
            [(None, value) for value in values],
            timestamp=client.life.now_ms(),
            producer_id=self._id[0],
            producer_epoch=self._id[1],
            base_sequence=self._sequence(place, len(values)),
            transactional=True,
        )
        request = produce_request(
            place.topic, batch, first=place.partition, acks=-1, timeout_ms=3000,
            transactional_id=self.name,
        )  # fmt: skip
        for _ in range(TRIES):
            leader = await client.leader(*place)
            answer = await client.ask(leader, request, newest=11 if self._first_version else 12)
            code = only(answer).error_code
            if code == ErrorCode.NONE:
                return
            if code not in CONFUSED:
                break
            client.forget_leader(*place)
            await client.pause()
        raise FailedTransaction

    def _sequence(self, place: Place, count: int) -> int:
        """Sequence numbers start again with each epoch."""
        if getattr(self, "_sequences_of", None) != self._id:
            self._sequences_of = self._id
            self._sequences: dict[Place, int] = {}
        first = self._sequences.get(place, 0)
        self._sequences[place] = first + count
        return first

    async def _end(self, commits: bool) -> None:
        request = Ask.EndTxn(**self.fields, committed=commits)
        answer = await self._ask_coordinator(request, 4 if self._first_version else 5)
        if not self._first_version:
            self._id = (answer.producer_id, answer.producer_epoch)

    async def _ask_coordinator(self, request: Message, newest: int) -> Any:
        for _ in range(TRIES):
            node = await self.client.coordinator(self.name, transactional=True)
            answer = await self.client.ask(node, request, newest=newest)
            code = _code_of(answer)
            if code == ErrorCode.NONE:
                return answer
            if code not in CONFUSED:
                break
            await self.client.pause()
        raise FailedTransaction


def _code_of(answer: Any) -> int:
    """The error code of an answer, or of its first row."""
    rows = getattr(answer, "results_by_topic_v3_and_below", None)
    if rows:
        return int(rows[0].results_by_partition[0].partition_error_code)
    return int(answer.error_code)
