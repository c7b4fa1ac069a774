"""Simulated members of a share group (KIP-932). They join, fetch from every leader in a session,
work for a while, and accept, release, reject or renew their records, or forget them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kstore.errors import ErrorCode
from kstore.record import decode
from tests.plain_messages import Ask
from tests.sim.deliveries import ACCEPT, REJECT, RELEASE, RENEW, Deliveries, Hold
from tests.sim.history import History, Place
from tests.sim.workloads.client import Client, Link, UnansweredError
from tests.sim.workloads.owning import HEARTBEAT_S, WAITS

LOCK_S = 2.0
SHARE_SETTINGS = {
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "3000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "400",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": str(int(LOCK_S * 1000)),
}
GROUP_CONFIG = 32
FINAL_EPOCH = -1
FORGET = 0
KINDS = (ACCEPT, RELEASE, REJECT, RENEW, FORGET)
WEIGHTS = (60, 20, 4, 12, 4)
SLOW = 0.05
"""How often a member works longer than its locks may last."""
LEAVES = 0.02
DRAIN_S = 30.0
"""How long the members wait for the next record to find its end, once nobody writes any more. All
of them may take much longer: the brokers deliver one record at a time (as Kafka does) where a slow
member has had hundreds so often that the next delivery is their last.
"""


async def begin_at_the_beginning(admin: Client, group: str) -> None:
    """Let a share group begin with the first record of a partition."""
    config = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    resource = {"resource_type": GROUP_CONFIG, "resource_name": group, "configs": [config]}
    while True:
        try:
            answer = await admin.ask_anyone(Ask.IncrementalAlterConfigs(resources=[resource]))
        except UnansweredError:
            continue
        if answer.responses[0].error_code == ErrorCode.NONE:
            return
        await admin.pause()


class _Sent(NamedTuple):
    """Acknowledgements of one partition in flight."""

    holds: list[tuple[Hold, int]]
    leading: tuple[str, int]
    """Which life of the broker led in which epoch."""


class _Session:
    """A share session with one broker; it lasts as long as its connection."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.epoch = 0
        self.places: set[Place] = set()
        self.holds: dict[tuple[Place, int], tuple[Hold, tuple[str, int]]] = {}
        """Each with who led when it was asked for."""

    def next_epoch(self) -> int:
        """The session epoch of the next request."""
        self.epoch += 1
        return self.epoch - 1


class ShareMember:
    """One member of one share group on one topic."""

    def __init__(
        self, client: Client, history: History, deliveries: Deliveries, group: str,
        places: list[Place],
    ) -> None:  # fmt: skip
        self.client = client
        self.stopping = False
        self._history = history
        self._deliveries = deliveries
        self._group = group
        self._topic = places[0].topic
        self._always = places[0]
        """Everybody fetches it, assigned or not, so that they meet."""
        self._member_epoch = 0
        self._assigned: set[Place] = set()
        self._told = False
        self._ended = -1
        self._gives_up_at = float("inf")

    async def run(self) -> None:
        """Be a member until stopped and every record has an outcome."""
        client, loop = self.client, self.client.world.loop
        while not await client.refresh(self._topic):
            await client.pause()
        serving = [client.spawn(self._serve(node_id)) for node_id in sorted(client.addresses)]
        while not (self.stopping and self.is_done(loop.time())):
            await self._heartbeat()
            if not self.stopping and client.random.random() < LEAVES:
                await self._leave()
            if any(client.leaders.get(place, (-1, -1))[0] < 0 for place in self._wanted()):
                await client.refresh(self._topic)
            await client.pause(HEARTBEAT_S / 2, HEARTBEAT_S)
            for task in serving:
                if task.done():
                    task.result()  # it has failed, which is a defect of the simulation
        for task in serving:
            task.cancel()

    def is_done(self, now: float) -> bool:
        """Whether every record has an outcome, or none got one for a long time."""
        ended = self.ended()
        if ended > self._ended:
            self._ended, self._gives_up_at = ended, now + DRAIN_S
        return now >= self._gives_up_at or not self._deliveries.missing()

    def ended(self) -> int:
        """The number of records of the group with an outcome, as far as its members know."""
        return self._deliveries.ended

    def check(self) -> None:
        """No record is missing at the end."""
        self._deliveries.check()

    def _wanted(self) -> set[Place]:
        return self._assigned | {self._always} if self._member_epoch > 0 else set()

    # ---- membership ----

    async def _heartbeat(self) -> None:
        client = self.client
        node = await client.coordinator(self._group, transactional=False)
        full = self._member_epoch == 0 or not self._told
        request = Ask.ShareGroupHeartbeat(
            group_id=self._group, member_id=client.name, member_epoch=self._member_epoch,
            subscribed_topic_names=[self._topic] if full else None,
        )  # fmt: skip
        try:
            answer = await client.ask(node, request, timeout_s=2.0)
        except UnansweredError:
            self._told = False
            return
        self._told = answer.error_code == ErrorCode.NONE
        if self._told:
            self._member_epoch = answer.member_epoch
            if answer.assignment is not None:
                self._assigned = {
                    Place(self._topic, index)
                    for row in answer.assignment.topic_partitions
                    for index in row.partitions
                }
        elif answer.error_code not in WAITS:
            self._member_epoch = 0

    async def _leave(self) -> None:
        self._member_epoch, self._told = 0, False
        request = Ask.ShareGroupHeartbeat(
            group_id=self._group, member_id=self.client.name, member_epoch=-1
        )
        try:
            node = await self.client.coordinator(self._group, transactional=False)
            await self.client.ask(node, request, timeout_s=2.0)
        except UnansweredError:
            pass  # it is fenced in time
        if self.client.random.random() < 0.5:
            self.client.close()
        await self.client.pause(0.1, 1.0)

    # ---- one leader ----

    async def _serve(self, node_id: int) -> None:
        """Fetch from one broker the partitions that it leads, and acknowledge them."""
        client, session = self.client, None
        while True:
            await client.pause(0.01, 0.15)
            wanted = {p for p in self._wanted() if client.leaders.get(p, (-1, -1))[0] == node_id}
            try:
                link = await client.link(node_id) if wanted else None
                if session is not None and (link is None or session.link is not link):
                    session = await self._end(session) if link is None else None
                if link is None:
                    continue
                session = session or _Session(link)
                if not await self._turn(node_id, session, wanted):
                    session = None
            except UnansweredError:
                session = None
                for place in wanted:
                    client.forget_leader(*place)

    async def _end(self, session: _Session) -> None:
        """End a session cleanly: acquired records are released."""
        request = Ask.ShareAcknowledge(
            group_id=self._group, member_id=self.client.name, share_session_epoch=FINAL_EPOCH
        )
        if not session.link.closed:
            await self.client.ask_on(session.link, request)

    async def _turn(self, node_id: int, session: _Session, wanted: set[Place]) -> bool:
        """Fetch once, work, acknowledge; False if the session has ended."""
        random = self.client.random
        if not await self._fetch(node_id, session, wanted, {}):
            return False
        if not session.holds:
            return True
        await self.client.pause(*((0.5, 2 * LOCK_S) if random.random() < SLOW else (0.0, 0.3)))
        decided = self._decide(node_id, session)
        if session.link.closed or not decided:
            return not session.link.closed
        renews = any(kind == RENEW for sent in decided.values() for _, kind in sent.holds)
        if renews or random.random() < 0.5:
            return await self._acknowledge(node_id, session, decided, renews=renews)
        return await self._fetch(node_id, session, wanted, decided)

    def _decide(self, node_id: int, session: _Session) -> dict[Place, _Sent]:
        """Decide about each held record; renewed records stay held."""
        random = self.client.random
        decided: dict[Place, _Sent] = {}
        for key, (hold, leading) in sorted(session.holds.items()):
            kind = ACCEPT if self.stopping else random.choices(KINDS, WEIGHTS)[0]
            if kind != RENEW:
                del session.holds[key]
            if kind != FORGET:
                sent = decided.setdefault(hold.place, _Sent([], leading))
                if sent.leading != leading:  # the member no longer holds one of them
                    decided[hold.place] = sent = sent._replace(leading=("", -1))
                sent.holds.append((hold, kind))
        return decided

    async def _fetch(
        self, node_id: int, session: _Session, wanted: set[Place], decided: dict[Place, _Sent]
    ) -> bool:
        random, client = self.client.random, self.client
        leading = {place: self._leading(node_id, place) for place in wanted}
        gone = session.places - wanted
        added = wanted - session.places
        rows = _rows({place: decided.get(place) for place in added | set(decided)})
        forgotten = sorted(place.partition for place in gone - set(decided))
        topic_id = client.topic_ids[self._topic]
        most = 500 if self.stopping else random.choice([1, 3, 10, 30])
        request = Ask.ShareFetch(
            group_id=self._group,
            member_id=client.name,
            share_session_epoch=session.next_epoch(),
            max_wait_ms=200,
            min_bytes=1,
            max_records=most,
            batch_size=most,
            share_acquire_mode=random.choice([0, 1]),
            topics=[{"topic_id": topic_id, "partitions": rows}],
            forgotten_topics_data=[{"topic_id": topic_id, "partitions": forgotten}],
        )
        session.places = wanted | set(decided)
        sent_at = client.world.loop.time()
        try:
            answer = await client.ask_on(session.link, request)
        except UnansweredError:
            self._deliveries.not_answered(session.places)
            self._perhaps(decided)
            raise
        if answer.error_code != ErrorCode.NONE:
            self._history.counts[f"share fetches with {answer.error_code}"] += 1
            self._perhaps(decided)
            return False
        told = {}
        for topic in answer.responses:
            for row in topic.partitions:
                place = Place(self._topic, row.partition_index)
                told[place] = row.acknowledge_error_code
                self._take(session, place, row, sent_at, leading.get(place, ("", -1)))
        self._hear(node_id, decided, told, sent_at)
        return True

    def _take(
        self, session: _Session, place: Place, row: Any, sent_at: float, leading: tuple[str, int]
    ) -> None:
        """The delivered records of a partition."""
        if row.error_code != ErrorCode.NONE:
            self._history.counts[f"share fetches with {row.error_code}"] += 1
            self.client.forget_leader(*place)
            return
        if not row.acquired_records:
            return
        now = self.client.world.loop.time()
        first = min(each.first_offset for each in row.acquired_records)
        values = {each.offset: each.value for each in decode(row.records, start_offset=first)}
        for acquired in row.acquired_records:
            for offset in range(acquired.first_offset, acquired.last_offset + 1):
                value = values.get(offset)
                if value is None:
                    self._history.break_rule("share_lost", f"{place} {offset} came without data")
                    continue
                self._history.was_read(place, offset, value)
                times = (sent_at, now, LOCK_S)
                hold = Hold(place, offset, acquired.delivery_count, self.client.name, times)
                session.holds[place, offset] = (hold, leading)
                self._deliveries.delivered(hold)

    async def _acknowledge(
        self, node_id: int, session: _Session, decided: dict[Place, _Sent], *, renews: bool
    ) -> bool:
        topic_id = self.client.topic_ids[self._topic]
        request = Ask.ShareAcknowledge(
            group_id=self._group, member_id=self.client.name,
            share_session_epoch=session.next_epoch(), is_renew_ack=renews,
            topics=[{"topic_id": topic_id, "partitions": _rows(decided)}],
        )  # fmt: skip
        sent_at = self.client.world.loop.time()
        try:
            answer = await self.client.ask_on(session.link, request)
        except UnansweredError:
            self._perhaps(decided)
            raise
        if answer.error_code != ErrorCode.NONE:
            self._perhaps(decided)
            return False
        told = {
            Place(self._topic, row.partition_index): row.error_code
            for topic in answer.responses
            for row in topic.partitions
        }
        self._hear(node_id, decided, told, sent_at)
        return True

    def _hear(
        self, node_id: int, decided: dict[Place, _Sent], told: dict[Place, int], sent_at: float
    ) -> None:
        """The results of acknowledgements."""
        now = self.client.world.loop.time()
        for place, sent in decided.items():
            code = told.get(place, ErrorCode.UNKNOWN_SERVER_ERROR)
            led = sent.leading[1] >= 0 and self._leading(node_id, place) == sent.leading
            if code == ErrorCode.NONE:
                self._deliveries.kept(sent.holds, sent_at, now, led=led)
            elif code != ErrorCode.INVALID_RECORD_STATE:
                self._deliveries.perhaps_kept(sent.holds)
            elif led:
                self._deliveries.not_held([hold for hold, _ in sent.holds], now)
            if code != ErrorCode.NONE:
                self._history.counts[f"acknowledgements with {code}"] += 1

    def _perhaps(self, decided: dict[Place, _Sent]) -> None:
        for sent in decided.values():
            self._deliveries.perhaps_kept(sent.holds)

    def _leading(self, node_id: int, place: Place) -> tuple[str, int]:
        """The life of a broker that leads a partition, and the epoch; ("", -1) if it does not
        lead.
        """
        node = self.client.world.nodes[node_id]
        if node.broker is None or node.life is None:
            return "", -1
        partition = node.broker.table.partition(place.topic.encode(), place.partition)
        if partition is None or not partition.online:
            return "", -1
        return node.life.name, partition.leader_epoch


def _rows(decided: Mapping[Place, _Sent | None]) -> list[dict[str, Any]]:
    """The acknowledgements of each partition in the form of a request: ranges without gaps."""
    rows = []
    for place, sent in sorted(decided.items()):
        found: list[Any] = []
        for hold, kind in () if sent is None else sent.holds:
            if found and found[-1]["last_offset"] + 1 == hold.offset:
                found[-1]["last_offset"] = hold.offset
                found[-1]["acknowledge_types"].append(kind)
            else:
                found.append({"first_offset": hold.offset, "last_offset": hold.offset})
                found[-1]["acknowledge_types"] = [kind]
        rows.append({"partition_index": place.partition, "acknowledgement_batches": found})
    return rows
