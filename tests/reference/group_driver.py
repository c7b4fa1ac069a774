"""Drives a GroupShard as its runtime would, with a clock that only tests move and a log that is a
list.

It checks on every step that deciding changed nothing, and it is slow and plain on purpose. It knows
no protocol rule.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any
from uuid import UUID

from kstore.broker.state.groups.coordinator.coordinator_shard import GroupShard
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.result import GroupContext, Result
from kstore.broker.state.groups.settings import GroupSettings
from kstore.broker.state.groups.timers import RegexesDue, TimerEvent, TimerKey
from kstore.broker.state.linear_regex import LinearRegex
from kstore.broker.state.metadata.image import MetadataImage, PartitionImage, TopicImage
from kstore.broker.state.work import whole
from kstore.config.group_configs import GROUP_CONFIGS
from kstore.protocol.coordinator_records.framing import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from kstore.protocol.schema import Message
from tests.plain_messages import Ask
from tests.record_requests import join_request


class Parked:
    """A request that waits; ``response`` is None until it is answered."""

    def __init__(self) -> None:
        self.response: Any = None


def values_of(group: Any) -> dict[str, str]:
    """Everything a group holds, as comparable values."""
    return {name: repr(getattr(group, name)) for name in group.__slots__}


def snapshot(shard: GroupShard) -> dict[str, Any]:
    """Everything a shard holds, as comparable values."""
    groups = {group_id: values_of(group) for group_id, group in shard.groups.items()}
    offsets = {group_id: repr(shard.offsets.topics(group_id)) for group_id in shard.groups}
    return {"groups": groups, "offsets": offsets}


class GroupDriver:
    """A shard with time, timers and a log. Member ids end in 1, 2, 3..."""

    def __init__(self, **settings: Any) -> None:
        self.shard = GroupShard(GroupSettings(check_invariants=True, **settings))
        self.image = MetadataImage("cluster")
        self.group_configs: dict[str, Any] = {}
        """Settings of all groups that are not the defaults."""
        self.now_ms = 1_000_000
        self.log: list[GroupRecord] = []
        self.last_records: list[GroupRecord] = []
        self.refused: Counter[int] = Counter()
        """What owners' commits were refused with so far."""
        self.timers: dict[TimerKey, tuple[int, int, TimerEvent]] = {}
        self.quick: Counter[str] = Counter()
        """The number of requests that were decided without work, by class name."""
        self._ids = itertools.count(1)
        self._order = itertools.count()

    def context(
        self, token: object, version: int, client_id: str, host: str, new_id: str = ""
    ) -> GroupContext:
        """What the runtime would say about a request."""
        return GroupContext(
            now_ms=self.now_ms,
            new_id=new_id,
            configs=self._configs(),
            token=token,
            api_version=version,
            client_id=client_id,
            client_host=host,
            extended=True,
            image=self.image,
        )

    def _configs(self) -> dict[str, Any]:
        defaults = {name: row.default for name, row in GROUP_CONFIGS.items()}
        return defaults | self.group_configs

    def _found(self, group_id: str) -> dict[str, frozenset[str]]:
        """The matches of a group's regular expressions: every member may describe every topic."""
        regexes = self.shard.subscribed_regexes(group_id)
        return {regex: LinearRegex(regex).filter(self.image.topics) for regex in regexes}

    def send(self, request: Message, *, version: int = -1, client_id: str = "c") -> Any:
        """The response, or a Parked that gets it later."""
        parked = Parked()
        if version == -1:
            version = request.MAX_VERSION
        wants_id = not getattr(request, "member_id", "is named")
        new_id = str(next(self._ids)) if wants_id else ""
        ctx = self.context(parked, version, client_id, "/127.0.0.1", new_id)
        before = snapshot(self.shard)
        quick = self.shard.quick(request, ctx)
        result = whole(self.shard.decide(request, ctx))
        assert snapshot(self.shard) == before, "a decision changed the state"
        if quick is not None:
            self.quick[type(request).__name__] += 1
            result = self.checked(quick, result)
        self.refused.update(result.refused)
        self.take(result)
        if result.response is not None:
            return result.response
        return parked if parked.response is None else parked.response

    def checked(self, quick: Result, full: Result) -> Result:
        """The quick decision, which must be the same as the full one."""
        assert quick._replace(edit=None) == full._replace(groups=()), "they differ"
        for group in full.groups:
            assert quick.edit is not None, "the full decision changes the group"
            edited = self.shard.groups[group.group_id].copy()
            edited.make(quick.edit)
            assert values_of(edited) == values_of(group), "the groups differ"
        if quick.edit is not None:
            self.shard.make(quick.edit)
        return quick

    def topic(self, name: str, partitions: int) -> UUID:
        """Make a topic, or change its partition count; its id."""
        known = self.image.topics.get(name)
        topic_id = UUID(int=1000 + next(self._ids)) if known is None else known.topic_id
        parts = tuple(PartitionImage(1, 0, (1,), (1,)) for _ in range(partitions))
        self.image = self.image.with_topics(TopicImage(name, topic_id, parts, {}))
        return topic_id

    def advance(self, ms: int) -> None:
        """Let time pass, firing the timers on the way in their order."""
        until = self.now_ms + ms
        while True:
            due = [(when, order, key) for key, (when, order, _) in self.timers.items()]
            if not due or min(due)[0] > until:
                break
            when, _, key = min(due)
            self.now_ms = when
            event = self.timers.pop(key)[2]
            self.tell(event)
        self.now_ms = until

    def tell(self, event: TimerEvent) -> None:
        """Let a group follow what happened elsewhere, or a timer."""
        ctx = self.context(None, 0, "", "")
        if isinstance(event, RegexesDue):
            ctx = ctx._replace(found=self._found(event.group_id))
        before = snapshot(self.shard)
        result = whole(self.shard.follow(event, ctx))
        assert snapshot(self.shard) == before, "a decision changed the state"
        self.take(result)

    def expire_offsets(self) -> None:
        """Run the retention check."""
        records: list[GroupRecord] = []
        for result in self.shard.expiry(self.now_ms):
            self.take(result)
            records += result.records
        self.last_records = records

    def restart(self) -> None:
        """A new coordinator that loads the log from its bytes. Parked requests get no response."""
        shard = GroupShard(self.shard.settings)
        for offset, record in enumerate(self.log):
            shard.replay(through_bytes(record), record_offset=offset)
        self.shard = shard
        self.timers = {}
        shard.check()
        for group_id in list(shard.groups):
            context = self.context(None, 0, "", "")
            self.take(whole(shard.resume(group_id, context)))

    def take(self, result: Result) -> None:
        """Append a step's records, and take it over."""
        base_offset = len(self.log)
        self.log += result.records
        self.last_records = list(result.records)
        whole(self.shard.take_over(result, base_offset))
        for token, response in result.completions:
            assert isinstance(token, Parked)
            assert token.response is None, "answered twice"
            token.response = response
        for change in result.timers:
            if change.only_if_absent and change.key in self.timers:
                continue
            self.timers.pop(change.key, None)
            if change.event is not None:
                when = self.now_ms + change.delay_ms
                self.timers[change.key] = (when, next(self._order), change.event)

    def join(
        self,
        group_id: str = "g",
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"meta"),),
        version: int = 9,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        client_id: str = "c",
        protocol_type: str = "consumer",
    ) -> Any:
        request = join_request(
            group_id, member_id, group_instance_id=instance, session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms, protocol_type=protocol_type,
            protocols=[{"name": n, "metadata": m} for n, m in protocols],
        )  # fmt: skip
        return self.send(request, version=version, client_id=client_id)

    def sync(
        self,
        member_id: str,
        generation_id: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group_id: str = "g",
        instance: str | None = None,
    ) -> Any:
        """Send a SyncGroup, a leader's if there are assignments."""
        given = (assignments or {}).items()
        request = Ask.SyncGroup(
            group_id=group_id, member_id=member_id, generation_id=generation_id,
            group_instance_id=instance,
            assignments=[{"member_id": key, "assignment": value} for key, value in given],
        )  # fmt: skip
        return self.send(request)

    def heartbeat(self, member_id: str, generation_id: int, instance: str | None = None) -> int:
        """Send a Heartbeat; the error code."""
        who = {"member_id": member_id, "group_instance_id": instance}
        request = Ask.Heartbeat(group_id="g", generation_id=generation_id, **who)
        return int(self.send(request).error_code)

    def leave(self, *identities: tuple[str, str | None]) -> Any:
        """Send a LeaveGroup for (member id, instance id) pairs."""
        members = [{"member_id": m, "group_instance_id": i} for m, i in identities]
        return self.send(Ask.LeaveGroup(group_id="g", members=members))

    def stable_group(self, count: int = 1, **join: Any) -> list[str]:
        """Bring ``count`` dynamic members into a stable first generation; their ids, the leader's
        first.
        """
        members = [self.join(**join).member_id for _ in range(count)]
        parked = [self.join(member_id=member, **join) for member in members]
        self.advance(self.shard.settings.initial_rebalance_delay_ms)
        if count > 1:
            self.advance(self.shard.settings.initial_rebalance_delay_ms)
        generation_id = parked[0].response.generation_id
        for member in reversed(members):
            given = {other: b"a-" + other.encode() for other in members}
            self.sync(member, generation_id, given if member == members[0] else None)
        return members


def through_bytes(record: GroupRecord) -> GroupRecord:
    """The record as it comes back from the log."""
    key = decode_key(encode_key(record.key))
    if record.value is None:
        return GroupRecord(key, None)
    value, version = decode_value(key, encode_value(record.value, record.value_version))
    return GroupRecord(key, value, version)
