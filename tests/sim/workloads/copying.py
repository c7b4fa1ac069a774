"""Simulated transactional copies: consume, transform, produce and commit the offset in one
transaction. After any unclear outcome they start again.
"""

from __future__ import annotations

from kstore.errors import ErrorCode
from tests.plain_messages import Ask
from tests.sim.history import History, Place, Row
from tests.sim.workloads.client import Client, UnansweredError
from tests.sim.workloads.committing import committed_offset
from tests.sim.workloads.reading import fetch, rows_of
from tests.sim.workloads.transacting import CONFUSED, TRIES, FailedTransaction, Transactional

SEPARATOR = b"|"
"""Between what was read and the name of the attempt that wrote it."""
MOST_RECORDS = 12


class TransactionalCopy(Transactional):
    """Copies one partition to a topic until it is stopped and has copied everything."""

    def __init__(
        self, client: Client, history: History, source: Place, target: str, partitions: int
    ) -> None:
        super().__init__(client, f"copy-{source.partition}")
        self.history = history
        self.source = source
        self.stopping = False
        self.goal = -1
        """The source's end; the copy ends once it has committed it."""
        self.end = -1
        """Where the copy has ended: at its goal, or after it, if the leader that gave the goal did
        not know yet of all that is committed.
        """
        self._target = target
        self._partitions = partitions
        self._attempts = 0

    async def run(self) -> None:
        client = self.client
        while True:
            await self._begin()
            position = max(await committed_offset(client, self.name, self.source), 0)
            try:
                while True:
                    if 0 <= self.goal <= position:
                        self.end = position
                        return
                    position = await self._copy_some(position)
            except (FailedTransaction, UnansweredError):
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
        name = f"{self.name}#{self._attempts}"
        values = [row.value + SEPARATOR + name.encode() for row in rows]
        outcome = "aborted"
        try:
            await self._write_rows(rows, values)
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
        return max(await committed_offset(self.client, self.name, self.source), 0)

    async def _write_rows(self, rows: list[Row], values: list[bytes]) -> None:
        parts: dict[int, list[bytes]] = {}
        for row, value in zip(rows, values, strict=True):
            parts.setdefault(row.offset % self._partitions, []).append(value)
        await self._write(self._target, parts)

    async def _commit_offset(self, offset: int) -> None:
        said = self.fields | {"group_id": self.name}
        if self._first_version:
            await self._ask_coordinator(Ask.AddOffsetsToTxn(**said), 3)
        rows = [{"partition_index": self.source.partition, "committed_offset": offset}]
        topics = [{"name": self.source.topic, "partitions": rows}]
        request = Ask.TxnOffsetCommit(**said, topics=topics)
        for _ in range(TRIES):
            node = await self.client.coordinator(self.name, transactional=False)
            answer = await self.client.ask(node, request, newest=4 if self._first_version else 5)
            code = answer.topics[0].partitions[0].error_code
            if code == ErrorCode.NONE:
                return
            if code not in CONFUSED:
                break
            await self.client.pause()
        raise FailedTransaction
