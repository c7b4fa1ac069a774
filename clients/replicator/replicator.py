"""The replicator: keeps one cluster a copy of another.

It keeps no state of its own. It continues at the target's log end offset, whoever wrote it, so it
can be killed and started again at any time, and two may run at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from kstore.clients.core.replication import PartitionCopy, Step
from kstore.clients.io.cluster import ANY, ClusterClient
from kstore.clients.replicator.copying import Copier
from kstore.clients.replicator.exact import ExactCopier
from kstore.clients.replicator.groups import GroupCopier
from kstore.clients.replicator.options import (
    Event,
    ReplicationError,
    ReplicationOptions,
    Report,
)
from kstore.clients.replicator.switching import Switch
from kstore.clients.replicator.topics import TopicCopier
from kstore.config.client.configs import client_settings
from kstore.errors import KafkaError
from kstore.types import TopicPartition

__all__ = ["NEEDED", "Progress", "Replicator", "first_of", "until_copied"]

NEEDED = ("kstore.kip391", "kstore.kip359")
EXACT = "kstore.exact"
"""The feature of exact copies, and of several batches of a partition per request."""
CATCH_UP_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of the copy; `lag` counts offsets of the source that the target has not
    reached.
    """

    partitions: int
    failed: int
    records: int
    bytes: int
    already_there: int
    lag: int


class Replicator:
    """Copies from one cluster to another. `source` and `target` are settings of clients, as a
    mapping of Kafka's names; both need bootstrap.servers.
    """

    def __init__(
        self,
        source: Mapping[str, Any],
        target: Mapping[str, Any],
        options: ReplicationOptions,
        report: Report | None = None,
    ) -> None:
        self._options = options
        self._report: Report = report or (lambda event: None)
        # A consumer and an admin client read these settings; no others matter here.
        self._source = ClusterClient(client_settings("consumer", source, {}))
        self._target = ClusterClient(client_settings("admin", target, {}))
        self._copier: Copier | None = None
        self._groups_batches = False
        self._groups = GroupCopier(self._source, self._target, options, self._report)
        self._topics = TopicCopier(self._source, self._target, options, self._report)

    # ---- run ----

    async def run(self, *, until_caught_up: bool = False, switch: bool = False) -> None:
        """Copy until cancelled; or until the target has what the source had at the start, with the
        groups' offsets of that time. ``switch``: until an exact copy is equal to its source, which
        has no more writers, and accepts records of its own.

        Raises ReplicationError if the copy can't continue, and at the end of a run until caught up
        if a partition failed.
        """
        try:
            await self._meet()
            self._topics.switching = switch
            copier = self._copier = self._new_copier()
            copier.is_patient = not (until_caught_up or switch)
            await self._sync_topics(copier)
            moving = asyncio.create_task(copier.run())
            if switch:
                rest = self._switch(copier)
            else:
                rest = self._catch_up(copier) if until_caught_up else self._keep_up(copier)
            await first_of(moving, asyncio.create_task(rest))
        finally:
            await self._source.close()
            await self._target.close()

    def progress(self) -> Progress:
        """The progress now."""
        copies = [] if self._copier is None else list(self._copier.copies.values())
        return Progress(
            partitions=len(copies),
            failed=sum(copy.step == Step.STOPPED for copy in copies),
            records=sum(copy.copied_records for copy in copies),
            bytes=sum(copy.copied_bytes for copy in copies),
            already_there=sum(copy.conceded for copy in copies),
            lag=sum(_lag(copy) for copy in copies),
        )

    def positions(self) -> dict[TopicPartition, int]:
        """The target's log end offset per partition, if known."""
        copies = {} if self._copier is None else self._copier.copies
        return {tp: copy.position for tp, copy in copies.items() if copy.position >= 0}

    @property
    def group_offsets(self) -> int:
        """The number of committed offsets that were written to the target."""
        return sum(self._groups.copied.values())

    # ---- parts ----

    @property
    def _needed(self) -> tuple[str, ...]:
        return (*NEEDED, EXACT) if self._options.exact else NEEDED

    def _new_copier(self) -> Copier:
        kind = ExactCopier if self._options.exact else Copier
        copier = kind(self._source, self._target, self._options, self._report)
        if isinstance(copier, ExactCopier):
            copier.topics = self._topics
        copier.groups_batches = self._groups_batches
        return copier

    async def _meet(self) -> None:
        """Check that both clusters answer, differ, and that the target accepts given offsets."""
        for cluster in (self._source, self._target):
            timeout_ms = cluster.settings["default.api.timeout.ms"]
            await cluster.retrying(partial(cluster.refresh, []), timeout_ms)
        connection = await self._target.connection(ANY)
        features = connection.versions.features
        missing = [name for name in self._needed if name not in features]
        self._groups_batches = EXACT in features
        if self._options.fence_source:
            there = await self._source.connection(ANY)
            if EXACT not in there.versions.features:
                raise ReplicationError(
                    f"the source at {there.address} can't be fenced: only kstore refuses "
                    "producers; stop them, and omit --fence-source"
                )
        if missing:
            raise ReplicationError(
                f"the target at {connection.address} does not accept records at given offsets "
                f"(it lacks {' and '.join(missing)}): it must be kstore"
            )
        source, target = self._source.view.cluster_id, self._target.view.cluster_id
        if source and source == target:
            raise ReplicationError(f"source and target are the same cluster, {source}")

    async def _sync_topics(self, copier: Copier) -> None:
        timeout_ms = self._source.settings["default.api.timeout.ms"]
        found = await self._target.retrying(self._topics.sync, timeout_ms)
        for tp in found:
            copier.add(tp)
        for tp in copier.copies.keys() - set(found):
            copier.stop(tp, ReplicationError(f"{tp} is no longer in the source"))

    async def _sync_groups(self) -> None:
        timeout_ms = self._source.settings["default.api.timeout.ms"]
        await self._source.retrying(lambda: self._groups.sync(self.positions()), timeout_ms)

    async def _keep_up(self, copier: Copier) -> None:
        """Follow topics, configs and groups forever; errors are reported, and do not end it."""
        while True:
            await asyncio.sleep(self._options.sync_interval_ms / 1000)
            try:
                await self._sync_topics(copier)
                await self._sync_groups()
            except KafkaError as error:
                self._report(Event("trouble", f"{error}; trying again"))

    async def _catch_up(self, copier: Copier) -> None:
        ends: dict[TopicPartition, int] = {}
        timeout_ms = self._source.settings["default.api.timeout.ms"]
        for tp in list(copier.copies):
            end = partial(copier.source_end, tp)
            ends[tp] = await self._source.retrying(end, timeout_ms, [tp.topic])
        await until_copied(copier, ends)
        await self._sync_groups()
        failed = [copy.problem for copy in copier.copies.values() if copy.step == Step.STOPPED]
        if failed:
            raise ReplicationError(f"{len(failed)} partitions failed, the first: {failed[0]}")

    async def _switch(self, copier: Copier) -> None:
        """Finish a copy when the source has no more writers; then the target's topics are ordinary
        topics.
        """
        if not isinstance(copier, ExactCopier):
            raise ReplicationError("only an exact copy can be switched")
        await self._catch_up(copier)
        switch = Switch(self._source, self._target, self._topics, copier, self._report)
        await switch.check_earlier()
        if self._options.fence_source:
            await switch.fence()
        ends = await switch.until_at_rest()
        await self._sync_groups()
        await switch.finish(ends)
        for name in sorted({tp.topic for tp in ends}):
            self._report(Event("switched", f"topic {name} accepts records now"))


async def until_copied(copier: Copier, ends: Mapping[TopicPartition, int]) -> None:
    """Wait until the target has what the source has below these offsets, except in failed
    partitions.
    """
    copies = copier.copies
    while True:
        copier.changed.clear()
        left = [
            tp
            for tp, end_offset in ends.items()
            if copies[tp].step != Step.STOPPED and not copies[tp].has_copied(end_offset)
        ]
        if not left:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await copier.changed.wait()
        await asyncio.sleep(CATCH_UP_PAUSE_S if len(left) > 64 else 0)


def _lag(copy: PartitionCopy) -> int:
    if copy.step == Step.STOPPED or copy.source_end < 0:
        return 0
    return 0 if copy.has_copied(copy.source_end) else max(copy.source_end - copy.position, 0)


async def first_of(*tasks: asyncio.Task[None]) -> None:
    """Wait until one of them is done; the others are cancelled, and its error is raised."""
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
