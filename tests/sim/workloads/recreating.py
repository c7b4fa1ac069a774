"""A simulated topic that is deleted and created again under the same name, repeatedly. Others write
to it, read it and commit offsets by the topic id that they know (KIP-232, KIP-516). Nothing of one
topic may appear in the next.
"""

from __future__ import annotations

from typing import Any

from kstore.errors import ErrorCode
from kstore.protocol.schema import ZERO_UUID
from kstore.record import batches, build_batch, decode
from tests.plain_messages import Ask
from tests.record_requests import (
    commit_request,
    fetch_part,
    fetch_request,
    list_request,
    only,
    produce_request,
)
from tests.sim.history import STAMPED, History, Place
from tests.sim.workloads.client import Client, UnansweredError, Workload
from tests.sim.workloads.reading import local_batches

LIMIT_S = 20.0
NOTICED_S = 8.0
"""After a restore of the store: then all brokers have started, and have noticed it."""
WITH_IDS = 13
NO_EPOCH = -1


class Recreator(Workload):
    """Creates the topic and deletes it, repeatedly; at the end it exists. Not while brokers start
    with an older copy of the store: until they notice that, partition epochs are given again.
    """

    def __init__(self, client: Client, history: History, topic: str, replicas: int) -> None:
        super().__init__(client, history)
        self.topic = topic
        self._replicas = replicas
        self._noticed_s = 0.0

    def store_restored(self) -> None:
        self._noticed_s = self.client.world.loop.time() + NOTICED_S

    async def run(self) -> None:
        while not await self._create() or not self.stopping:
            await self.client.pause(0.2, 3.0)
            if not self.stopping:
                await self._delete()

    async def _create(self) -> bool:
        """Whether the topic exists now."""
        while self.client.world.loop.time() < self._noticed_s:
            await self.client.pause()
        topic = {"name": self.topic, "num_partitions": 1, "replication_factor": self._replicas}
        try:
            answer = await self.client.ask_anyone(
                Ask.CreateTopics(topics=[topic]), timeout_s=LIMIT_S
            )
        except UnansweredError:
            return False
        code = answer.topics[0].error_code
        return code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

    async def _delete(self) -> None:
        request = Ask.DeleteTopics(topics=[{"name": self.topic}], timeout_ms=10_000)
        try:
            answer = await self.client.ask_anyone(request, timeout_s=LIMIT_S)
        except UnansweredError:
            return
        if answer.responses[0].error_code == ErrorCode.NONE:
            self.history.counts["topics deleted to be made anew"] += 1


class Visitor(Workload):
    """Learns the id of the topic now and then. In between it writes, reads and commits with that
    id, whatever has happened to the topic.
    """

    def __init__(self, client: Client, history: History, topic: str, group: str) -> None:
        super().__init__(client, history)
        self.place = Place(topic, 0)
        self.group = group
        self._id: Any = ZERO_UUID
        self._epoch = NO_EPOCH
        self._offset = 0
        self._written = 0

    def store_restored(self) -> None:
        """The topic may be an earlier one again, as after a restart of this client."""
        self._id, self._epoch = ZERO_UUID, NO_EPOCH

    async def run(self) -> None:
        while not self.stopping:
            try:
                if self._id == ZERO_UUID or self.client.random.random() < 0.1:
                    await self._learn()
                else:
                    await self.client.random.choice(
                        [
                            self._write, self._read, self._commit, self._look,
                            self._write_by_name, self._list_offsets, self._delete_records,
                            self._look_by_name,
                        ]
                    )()  # fmt: skip
            except UnansweredError:
                self.client.forget_leader(*self.place)
            await self.client.pause(0.0, 0.1)

    async def _learn(self) -> None:
        row = await self.client.metadata(self.place.topic)
        if row.error_code != ErrorCode.NONE or not row.partitions:
            return
        (partition,) = row.partitions
        self._heard(row.topic_id, partition.partition_epoch)
        if partition.partition_epoch < self._epoch:
            return  # from a broker that does not know the new topic yet
        if row.topic_id != self._id:
            self._id, self._offset = row.topic_id, 0
        self._epoch = partition.partition_epoch
        self.client.leaders[self.place] = partition.leader_id, partition.leader_epoch

    def _heard(self, topic_id: Any, epoch: int) -> None:
        if epoch != NO_EPOCH:
            self.history.has_epoch(self.place, epoch, topic_id.bytes)

    def _leader(self) -> int:
        leader, _ = self.client.leaders.get(self.place, (-1, -1))
        return leader if leader >= 0 else self.client.random.choice(sorted(self.client.addresses))

    def _count(self, row: Any, what: str) -> None:
        if row.error_code == ErrorCode.NONE:
            self.history.counts[what] += 1
        else:
            self.client.forget_leader(*self.place)

    def _record(self) -> bytes:
        """A batch of one record that names its topic id."""
        self._written += 1
        value = b"%s%s:%s/%d" % (
            STAMPED, self._id.hex.encode(), self.client.name.encode(), self._written,
        )  # fmt: skip
        return build_batch([value], timestamp=self.client.life.now_ms())

    async def _write(self) -> None:
        request = produce_request(self._id, self._record(), acks=-1, timeout_ms=3000)
        answer = await self.client.ask(self._leader(), request, newest=WITH_IDS)
        self._count(only(answer), "written by topic id")

    async def _write_by_name(self) -> None:
        request = produce_request(
            self.place.topic, self._record(), acks=-1, timeout_ms=3000,
            row={"partition_epoch": self._epoch},
        )  # fmt: skip
        answer = await self.client.ask(self._leader(), request, newest=WITH_IDS - 1)
        self._count(only(answer), "written by name and epoch")

    async def _list_offsets(self) -> None:
        epoch = self._epoch
        request = list_request(self.place.topic, row={"partition_epoch": epoch})
        answer = await self.client.ask(self._leader(), request)
        found = answer.topics[0].partitions[0]
        if found.error_code == ErrorCode.NONE:
            self.history.meant(self.place, epoch, found.partition_epoch, "the end")
        else:
            self.client.forget_leader(*self.place)

    async def _delete_records(self) -> None:
        offset = self._offset // 2
        row = {"partition_index": 0, "offset": offset, "partition_epoch": self._epoch}
        topic = {"name": self.place.topic, "partitions": [row]}
        self.history.deletes(self._id.bytes, offset)
        request = Ask.DeleteRecords(topics=[topic], timeout_ms=1000)
        answer = await self.client.ask(self._leader(), request)
        self._count(answer.topics[0].partitions[0], "deletions by name and epoch")

    async def _look_by_name(self) -> None:
        """Fetch the group's offset in the known topic: an offset of another topic counts as
        none.
        """
        epoch = self._epoch
        if row := await self._committed(partition_epochs=[epoch]):
            self.history.meant(self.place, epoch, row.partition_epoch, "the group's offset")

    async def _read(self) -> None:
        part = fetch_part(self._offset, max_bytes=65536)
        request = fetch_request(self._id, part, max_wait_ms=50)
        asked = self._id
        answer = await self.client.ask(self._leader(), request, newest=WITH_IDS)
        bad = answer.error_code != ErrorCode.NONE or not answer.responses
        if bad or only(answer).error_code != ErrorCode.NONE:
            self.client.forget_leader(*self.place)
            return
        row = only(answer)
        self._heard(asked, row.partition_epoch)
        records = decode(row.records, start_offset=self._offset)
        for record in records:
            value = record.value or b""
            self.history.counts["read by topic id"] += 1
            self.history.belongs(self.place, asked.hex.encode(), value, "fetched")
        self._offset = records.next_offset or self._offset

    async def _commit(self) -> None:
        row = {"committed_metadata": self._id.hex, "partition_epoch": self._epoch}
        request = commit_request(self.place.topic, {0: self._offset}, self.group, row=row)
        node = await self.client.coordinator(self.group, transactional=False)
        await self.client.ask(node, request, newest=9)

    async def _look(self) -> None:
        """Fetch the group's offset: its epoch and the committed id belong together."""
        if row := await self._committed():
            self.history.counts["offsets of recreated topics"] += 1
            topic_id = bytes.fromhex(row.metadata or "")
            self.history.has_epoch(self.place, row.partition_epoch, topic_id)

    async def _committed(self, **said: Any) -> Any:
        """The group's offset at the coordinator; None if there is none."""
        topic = {"name": self.place.topic, "partition_indexes": [0], **said}
        request = Ask.OffsetFetch(groups=[{"group_id": self.group, "topics": [topic]}])
        node = await self.client.coordinator(self.group, transactional=False)
        found = (await self.client.ask(node, request, newest=9)).groups[0]
        if found.error_code != ErrorCode.NONE:
            return None
        row = found.topics[0].partitions[0]
        is_there = row.error_code == ErrorCode.NONE and row.committed_offset >= 0
        return row if is_there else None

    def check(self) -> None:
        """At the end, no broker's log of the topic has a record of another topic, and no group has
        an offset of an earlier topic.
        """
        for node in self.client.world.brokers():
            topic = node.broker.image.topics.get(self.place.topic)
            if topic is None:
                continue
            partition = node.broker.table.partition(self.place.topic.encode(), 0)
            if partition is not None and partition.log is not None:
                begins = partition.log_start_offset
                self.history.begins(self.place, topic.topic_id.bytes, begins)
            for _, data in local_batches(node, self.place):
                for batch in batches(data):
                    for record in decode(batch.data):
                        self.history.belongs(
                            self.place, topic.topic_id.hex.encode(), record.value or b"", node.host
                        )
