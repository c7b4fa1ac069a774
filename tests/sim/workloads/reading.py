"""Simulated consumers without a group, and the final read of every partition."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from kstore.errors import ErrorCode, KafkaError, error_for
from kstore.log import CorruptLogError
from kstore.record import batches, decode
from tests.record_requests import fetch_part, fetch_request, only
from tests.sim.history import History, Place, Row
from tests.sim.machines.world import Node
from tests.sim.workloads.client import Client, UnansweredError, Workload

MOST_TRIES = 50
"""How often the end of a damaged partition is asked for."""


async def fetch(
    client: Client, place: Place, offset: int, *, isolation: int, wait_ms: int = 200
) -> Any:
    """One fetch of one partition from its leader; the partition's response. Raises
    UnansweredError.
    """
    leader = await client.leader(*place)
    part = fetch_part(offset, place.partition, 65536)
    request = fetch_request(place.topic, part, max_wait_ms=wait_ms, isolation_level=isolation)
    try:
        row = only(await client.ask(leader, request, newest=12))
    except UnansweredError:
        client.forget_leader(*place)
        raise
    if row.error_code != ErrorCode.NONE:
        client.forget_leader(*place)
    return row


def rows_of(answer: Any, offset: int) -> tuple[list[Row], int]:
    """The records in the response to a fetch, and the offset to continue from."""
    if not answer.records:
        return [], offset
    aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
    records = decode(answer.records, start_offset=offset, aborted=aborted)
    rows = [
        Row(r.offset, r.value or b"", r.batch.producer_id, r.batch.base_sequence) for r in records
    ]
    return rows, records.next_offset or offset


class Reader(Workload):
    """Reads one partition from the beginning to the end, and new records after it; or ``again``
    from the beginning.
    """

    def __init__(
        self, client: Client, history: History, place: Place, isolation: int, *, again: bool = False
    ) -> None:
        super().__init__(client, history)
        self.place = place
        self.offset = 0
        self.whole = True
        """Every offset of the partition has a record: there are no transactions in it."""
        self._isolation = isolation
        self._again = again

    async def run(self) -> None:
        while not self.stopping:
            answer, before = None, self.offset
            with suppress(UnansweredError):
                answer = await fetch(self.client, self.place, before, isolation=self._isolation)
            if answer is None or answer.error_code != ErrorCode.NONE:
                # Above the leader's high watermark for a moment, after an election.
                await self.client.pause()
                continue
            try:
                rows, self.offset = rows_of(answer, before)
            except (KafkaError, ValueError):
                # It is damaged; other leaders have an undamaged copy.
                self.history.counts["damaged answers"] += 1
                await self.client.pause()
                continue
            if rows and rows[0].offset != before and self.whole:
                self.history.was_skipped(self.place, before, rows[0].offset)
            if self._again and not rows:
                self.offset = 0
            for row in rows:
                self.history.was_read(self.place, row.offset, row.value)


async def read_partition(
    client: Client, place: Place, *, committed: bool, history: History | None = None
) -> list[Row]:
    """Everything that a consumer can read of a partition now. With ``history`` the partition may be
    damaged, and damage is reported there.
    """
    found: list[Row] = []
    offset = tries = 0
    while True:
        try:
            answer = await fetch(client, place, offset, isolation=int(committed), wait_ms=0)
        except UnansweredError:
            await client.pause()
            continue
        end = answer.last_stable_offset if committed else answer.high_watermark
        try:
            if answer.error_code != ErrorCode.NONE:
                raise error_for(answer.error_code)
            rows, offset = rows_of(answer, offset)
        except (KafkaError, ValueError) as problem:
            tries += 1
            if history is not None and tries > MOST_TRIES:
                history.not_read(place, offset, problem)
                return found
            await client.pause()
            continue
        found += rows
        if offset >= end:
            return found


def local_batches(node: Node, place: Place) -> list[tuple[int, bytes]]:
    """The batches of a running broker's replica below its high watermark: base offset and bytes,
    without the fields that may differ between replicas (none), up to the first damage that it
    reports.
    """
    partition = node.broker.table.partition(place.topic.encode(), place.partition)
    if partition is None or partition.log is None:
        return []
    log = partition.log
    found: list[tuple[int, bytes]] = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        try:
            data = log.read_batches(offset)
        except CorruptLogError:
            break
        if not data:
            break
        for batch in batches(data):
            if batch.base_offset < log.high_watermark:
                found.append((batch.base_offset, bytes(batch.data)))
            offset = batch.last_offset + 1
    return found
