"""KAFKA-19779 in numbers: commits of members of a consumer group (KIP-848) while it rebalances,
under the strict rule and under that of assignment epochs. Members commit what they own, all the
time, plainly or in transactions of 20 ms; other members join and leave. Before a partition is
revoked, open work is finished, as applications do, so every commit is valid. Each member that lost
a partition to another one then tries to commit for it with the epoch in which it had it: such a
zombie must never be accepted. `pytest -s` shows the numbers; the environment variable
KSTORE_DOCUMENT_ROUNDS makes them larger.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from kstore.clients import AIOAdminClient, AIOProducer, NewTopic
from kstore.clients.core.consumer.commits import commit_request, commits_of
from kstore.clients.core.group.group_step import CommitClaim
from kstore.clients.io.cluster import GROUP
from kstore.errors import CommitFailedError, IllegalGenerationError, StaleMemberEpochError
from kstore.types import OffsetAndMetadata, TopicPartition
from tests.beside.waiting import reached
from tests.clients.io.group_driver import Poller
from tests.conformance.kstore_broker import KstoreBroker
from tests.documents.strict_commits import StrictBroker

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
PARTITIONS = 6
ROUNDS = int(os.environ.get("KSTORE_DOCUMENT_ROUNDS", "8"))
TRANSACTION_S = 0.02
FENCED = (CommitFailedError, IllegalGenerationError, StaleMemberEpochError)


class Committer(Poller):
    """A member that commits all the time; `owners` is shared by all of them."""

    def __init__(self, bootstrap: str, counts: Counter[str], owners: dict[Any, Any]) -> None:
        super().__init__(bootstrap, "g", group_protocol="consumer", enable_auto_commit=False)
        self.counts = counts
        self.owners = owners
        self.had: dict[TopicPartition, CommitClaim] = {}
        self._turn = asyncio.Lock()
        self._offsets = itertools.count(1)

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Finish what was begun, then remember whose these were, and when."""
        async with self._turn:
            for tp in partitions:
                self.had[tp] = self.group._claim()
        await super().revoked(partitions)

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Tell the others."""
        for tp in partitions:
            self.owners[tp] = self
            self.had.pop(tp, None)
        await super().assigned(partitions)

    async def commit_plainly(self) -> None:
        """Until it is cancelled."""
        while True:
            async with self._turn:
                if offsets := self._next_offsets():
                    await self._count("plain", self.group.commit_once(offsets))
            await asyncio.sleep(0.002)

    async def commit_in_transactions(self, producer: AIOProducer) -> None:
        """Until it is cancelled: the group's metadata is as old as the transaction."""
        await producer.init_transactions()
        while True:
            async with self._turn:
                if offsets := self._next_offsets():
                    metadata = self.group.group_metadata()
                    await producer.begin_transaction()
                    await asyncio.sleep(TRANSACTION_S)
                    sending = producer.send_offsets_to_transaction(offsets, metadata)
                    if await self._count("transactional", sending):
                        await producer.commit_transaction()
                    else:
                        await producer.abort_transaction()
            await asyncio.sleep(0.002)

    async def be_a_zombie(self) -> None:
        """Until it is cancelled: commit for what others have by now."""
        while True:
            for tp, claim in list(self.had.items()):
                if tp in self.had and self.owners.get(tp, self) is not self:
                    code = await self._commit_as(tp, claim)
                    if tp in self.had:
                        self.counts[f"zombie {'taken' if code == 0 else 'refused'}"] += 1
            await asyncio.sleep(0.01)

    def _next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        if not self.owned or self.group.group_metadata().generation_id <= 0:
            return {}
        return {tp: OffsetAndMetadata(next(self._offsets)) for tp in self.owned}

    async def _count(self, kind: str, commit: Any) -> bool:
        self.counts[kind] += 1
        try:
            await commit
        except FENCED:
            self.counts[f"{kind} refused"] += 1
            return False
        return True

    async def _commit_as(self, tp: TopicPartition, claim: CommitClaim) -> int:
        commits = commits_of({tp: OffsetAndMetadata(0)})
        request = commit_request("g", claim, commits, {}, partition_epochs=False)
        node_id = await self.cluster.coordinator(GROUP, "g")
        response: Any = await self.cluster.ask(node_id, request, at_most=9)
        return int(response.topics[0].partitions[0].error_code)


async def visit(bootstrap: str, counts: Counter[str], owners: dict[Any, Any]) -> None:
    """A third member comes, and goes when zombies have tried to commit for what it has."""
    async with Committer(bootstrap, counts, owners) as guest:
        await guest.subscribe("t")
        await reached(lambda: len(guest.owned) == PARTITIONS // 3)
        before = counts["zombie refused"] + counts["zombie taken"]
        await reached(lambda: counts["zombie refused"] + counts["zombie taken"] > before + 2)


async def churn(bootstrap: str) -> Counter[str]:
    """Two members stay, a third one joins and leaves; returns the results of their commits."""
    counts: Counter[str] = Counter()
    owners: dict[Any, Any] = {}
    async with AIOAdminClient(bootstrap) as admin:
        await admin.create_topics([NewTopic("t", PARTITIONS)])
    async with (
        Committer(bootstrap, counts, owners) as plain,
        Committer(bootstrap, counts, owners) as transactional,
        AIOProducer(bootstrap, transactional_id="x", retry_backoff_ms=5) as producer,
    ):
        for member in (plain, transactional):
            await member.subscribe("t")
        await reached(lambda: len(plain.owned) == len(transactional.owned) == PARTITIONS // 2)
        tasks = [
            asyncio.create_task(plain.commit_plainly()),
            asyncio.create_task(transactional.commit_in_transactions(producer)),
            asyncio.create_task(plain.be_a_zombie()),
            asyncio.create_task(transactional.be_a_zombie()),
        ]
        for _ in range(ROUNDS):
            await visit(bootstrap, counts, owners)
            await reached(lambda: len(plain.owned) + len(transactional.owned) == PARTITIONS)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["strict", "assignment epochs"])
def test_rightful_commits_are_taken_and_zombies_never(tmp_path: Path, rule: str) -> None:
    kind = StrictBroker if rule == "strict" else KstoreBroker
    broker = kind(tmp_path, overrides=SETTINGS)
    broker.start()
    try:
        counts = asyncio.run(asyncio.wait_for(churn(broker.bootstrap), 240))
    finally:
        broker.stop()
    print(f"\n{rule}: {dict(sorted(counts.items()))}")
    assert counts["zombie taken"] == 0
    assert counts["zombie refused"] > 0
    assert counts["plain"] > 0
    if rule == "strict":
        assert counts["transactional refused"] > 0
    else:
        assert counts["plain refused"] == counts["transactional refused"] == 0
