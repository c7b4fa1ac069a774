"""The groups of one partition of __consumer_offsets.

`decide` and `follow` make decisions and change nothing. `replay` applies records of the log.
`take_over` applies a decided step once its records are appended. All of them are work in pieces,
and no other decision is made before a step is applied. The shard has no log, clock or connection:
broker/runtime/groups/group_partition.py runs it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kstore.broker.state.groups.consumer.group import ConsumerGroup
from kstore.broker.state.groups.consumer.ordered_expansion import as_seen_by
from kstore.broker.state.groups.contract import Group
from kstore.broker.state.groups.coordinator.admin import describe_group, expiry_records, list_groups
from kstore.broker.state.groups.coordinator.tables import (
    BEATS,
    CHECKS,
    NO_GROUP,
    OTHERS,
    PARKED,
    QUICK,
    RECORDS,
    REQUESTS,
    RESUME,
    TIMERS,
    resolve,
)
from kstore.broker.state.groups.offsets import NO_PRODUCER_ID, Offsets, commit_tombstone
from kstore.broker.state.groups.positions import Positions, exchange
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.result import Edit, GroupContext, Result, Token
from kstore.broker.state.groups.settings import GroupSettings
from kstore.broker.state.groups.share.group import SHARE_KIND, ShareGroup
from kstore.broker.state.groups.share.offsets import forget_topic
from kstore.broker.state.groups.timers import TimerEvent
from kstore.broker.state.metadata.image import MetadataImage
from kstore.broker.state.work import ROWS_BETWEEN, Work
from kstore.protocol.coordinator_records.classic import GroupMetadataKey
from kstore.protocol.groups.group_admin import DeleteGroupsRequest, DescribedGroup, ListedGroup
from kstore.protocol.groups.offsets import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from kstore.protocol.schema import Message

__all__ = ["GroupShard", "group_id_of"]

GATED = QUICK.keys() | {"LeaveGroupRequest"}
"""The requests that may change targets."""


def group_id_of(request: Message) -> str:
    """The group that a request is about."""
    if isinstance(request, DeleteGroupsRequest):
        return request.groups_names[0]
    group_id: str = request.group_id  # type: ignore[attr-defined]
    return group_id


class GroupShard:
    """Groups of all kinds and offsets of one partition. No method blocks."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.groups: dict[str, Any] = {}
        """Group id to group: see contract.Group."""
        self.offsets = Offsets()
        self.positions = Positions()

    def decide(self, request: Message, ctx: GroupContext) -> Work[Result]:
        """Decide about a request that may change a group. This changes nothing: pass the result to
        `take_over`.
        """
        group_id = group_id_of(request)
        group: Group | None = self.groups.get(group_id)
        name = type(request).__name__
        if name in GATED:
            ctx = as_seen_by(self, group_id, ctx)
        rows = REQUESTS[name]
        kind = NO_GROUP if group is None else group.kind
        row = rows.get(kind) or rows[OTHERS]
        result = yield from _decided(resolve(row)(self, group, request, ctx))
        return exchange(self, self.positions, request, result, ctx) if name in BEATS else result

    def quick(self, request: Message, ctx: GroupContext) -> Result | None:
        """The decision of `decide` for most requests of members: see the table QUICK. None for all
        other requests. Of the result, only response, timers and edit are set; `make` makes the
        edit. It costs a third.
        """
        name = type(request).__name__
        rows: Any = QUICK.get(name)
        if rows is None or self.positions or (ctx.image is not None and ctx.image.ordered):
            return None
        requested: Any = request
        group: Group | None = self.groups.get(requested.group_id)
        if group is None or (name in BEATS and (requested.need_position or requested.position)):
            return None
        row = rows.get(group.kind)
        return None if row is None else resolve(row)(self, group, request, ctx)

    def make(self, edit: Edit) -> None:
        """Make the change that `quick` has decided."""
        self.groups[edit.group_id].make(edit)

    def follow(self, event: TimerEvent, ctx: GroupContext) -> Work[Result]:
        """Decide about a timer that fired."""
        group: Group | None = self.groups.get(event.group_id)
        row = None if group is None else TIMERS[type(event).__name__].get(group.kind)
        if row is None:
            return Result()
        decided = resolve(row)(self, group, event, as_seen_by(self, event.group_id, ctx))
        return (yield from _decided(decided))

    def take_over(self, result: Result, base_offset: int = -1) -> Work[None]:
        """Apply a result whose records are in the log from ``base_offset`` on."""
        producer_id = NO_PRODUCER_ID if result.producer is None else result.producer[0]
        successors = {group.group_id for group in result.groups}
        for index, record in enumerate(result.records):
            offset = base_offset + index if base_offset >= 0 else -1
            if not _is_of_successor(record, successors):
                self.replay(record, record_offset=offset, producer_id=producer_id)
            if index % ROWS_BETWEEN == ROWS_BETWEEN - 1:
                yield
        for group in result.groups:
            self.groups[group.group_id] = group
        for group_id, attribute, value in result.marks:
            if group_id in self.groups:
                setattr(self.groups[group_id], attribute, value)
        if result.reports is not None:
            self.positions.replace(*result.reports)
        if result.records:
            self.check()

    def check(self) -> None:
        """Assert the invariants of all groups, if ``kstore.check.invariants`` is set."""
        if not self.settings.check_invariants:
            return
        for group in self.groups.values():
            if group.kind in CHECKS:
                resolve(CHECKS[group.kind])(group)

    def replay(
        self,
        record: GroupRecord,
        *,
        record_offset: int = -1,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        """Apply one record of the log. ``producer_id`` is set if it belongs to a transaction."""
        key, value = record.key, record.value
        resolve(RECORDS[key.RECORD_TYPE])(self, key, value, record_offset, producer_id)

    def replay_transaction_end(self, producer_id: int, *, committed: bool) -> Work[None]:
        """Apply a transaction marker of the log."""
        return self.offsets.replay_transaction_end(producer_id, committed=committed)

    def resume(self, group_id: str, ctx: GroupContext) -> Work[Result]:
        """Resume a group after replay: sessions and other timers start again."""
        group: Group = self.groups[group_id]
        return (yield from _decided(resolve(RESUME[group.kind])(self, group, ctx)))

    def subscribed_regexes(self, group_id: str) -> Mapping[str, frozenset[str]]:
        """The regular expressions of a consumer group, and the topics that each matched last
        time.
        """
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return {}
        last = group.regexes
        return {
            regex: last[regex].topics if regex in last else frozenset()
            for regex in group.subscriptions.regexes
        }

    def unloaded(self) -> list[tuple[Token, Message]]:
        """The responses to parked requests when this broker is no longer the coordinator."""
        answers: list[tuple[Token, Message]] = []
        for group in self.groups.values():
            answers += resolve(PARKED[group.kind])(group)
        return answers

    def describe(self, group_id: str, api_version: int) -> Work[DescribedGroup]:
        """DescribeGroups for one group."""
        return describe_group(self.groups.get(group_id), group_id, api_version)

    def list(self, states: list[str], types: list[str]) -> Work[list[ListedGroup]]:
        """ListGroups."""
        return list_groups(tuple(self.groups.values()), states, types)

    def fetch_offsets(
        self,
        request: OffsetFetchRequestGroup,
        *,
        require_stable: bool,
        with_epochs: bool = True,
        image: MetadataImage | None = None,
    ) -> Work[OffsetFetchResponseGroup]:
        """OffsetFetch for one group. An unknown group has no offsets, which is not an error.
        ``with_epochs``: with partition epochs (KIP-232).
        """
        group: Group | None = self.groups.get(request.group_id)
        if group is not None:
            error_code = group.fetch_error(request.member_id, request.member_epoch)
            if error_code:
                return OffsetFetchResponseGroup(group_id=request.group_id, error_code=error_code)
        return (
            yield from self.offsets.fetch(
                request, require_stable=require_stable, with_epochs=with_epochs, image=image
            )
        )

    def expiry(self, now_ms: int) -> Iterator[Result]:
        """The tombstones of offsets past ``offsets.retention.minutes``, in parts. Each part must be
        applied before the next one is requested; other decisions may be made in between.
        """
        retention_ms = self.settings.offsets_retention_ms
        for records in expiry_records(self.groups, self.offsets, now_ms, retention_ms):
            yield Result(records=tuple(records))

    def forget_topic(self, name: str, first: int = 0) -> Iterator[Result]:
        """The tombstones of all offsets of a deleted topic, or of its partitions from index
        ``first`` on, and the records of share groups about it. In parts, as in `expiry`.
        """
        shares = [key for key, each in self.groups.items() if each.kind == SHARE_KIND]
        for group_id in shares if first == 0 else ():
            group = self.groups.get(group_id)
            if isinstance(group, ShareGroup):
                yield forget_topic(group, name)
        for places in self.offsets.groups_of_topic(name):
            gone = (commit_tombstone(group, name, p) for group, p in places if p >= first)
            yield Result(records=tuple(gone))


def _is_of_successor(record: GroupRecord, successors: Collection[str]) -> bool:
    """Whether one of the groups in ``successors`` also writes this record."""
    key = record.key
    return (
        isinstance(key, GroupMetadataKey) and record.value is not None and key.group in successors
    )


def _decided(found: Result | Work[Result]) -> Work[Result]:
    """The result of a row's function, which returns a Result or, if it may take long, work."""
    return found if isinstance(found, Result) else (yield from found)
