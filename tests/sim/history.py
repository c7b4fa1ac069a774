"""What clients and brokers were observed to do, and the checkers for it.

A checker uses observations only, never a broker's own view of its state. Each describes a violation
in a sentence; `Violation` names its rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

from kstore.errors import ErrorCode, error_name
from tests.sim.commits import Asked, GroupOffset

MOST_OF_A_RULE = 4
KEYED, STAMPED = b"key:", b"topic:"
"""What values begin with of which more is known: "key:NAME:NUMBER", numbers from 0 without a gap,
and "topic:ID:...", the id of the topic that was written to.
"""
NO_DECISION = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
}
"""Errors of commits that say nothing about who may commit: ask again, or another broker."""
RULES = {
    "acknowledged": "an acknowledged record is in the log, at the offset that was told",
    "offset_reused": "an offset that a reader saw never holds another record",
    "high_watermark": "a leader's high watermark never goes back",
    "one_leader": "a partition has one leader per leader epoch",
    "prefixes": "what replicas have below their high watermarks is the same",
    "duplicate": "an idempotent producer's record is in the log once, in the order sent",
    "atomic": "of a transaction all records are visible, or none",
    "exactly_once": "each input of a transactional copy is in its output once",
    "key_order": "a group reads each key's records in the order written, while the topic grows",
    "refusals": "producers that know the count are refused for a bounded time",
    "recreated": "a recreated topic is never taken for the one before it",
    "other_life": "a request by name is not carried out on another topic than the one it means",
    "one_owner": "a partition has one owner in a group at a time",
    "owners_commit": "a commit of who owns the partition all the time is not refused",
    "commits": "an acknowledged commit of a group's offset is not lost",
    "share_state": "what a share-partition's leader has kept is what the next one reads",
    "one_holder": "a record of a share group has one holder at a time, as long as its lock lasts",
    "accepted_once": "what a share group has accepted or rejected does not come again",
    "delivery_count": "a record is delivered up to the limit, and each release counts",
    "share_lost": "a share group gets every record",
    "topics": "what was answered about a topic holds, on every broker",
    "lost_records": "who has processed records is told which of them no longer exist",
    "given_offsets": "a batch with a given offset is stored there; who asks again is told so",
    "exact_copy": "an exact copy has the batches of its source, at their offsets",
    "wrong_record": "a reader is never given a record that nobody sent",
    "silent_loss": "what a damaged disk has lost is repaired from another replica, or told",
    "liveness": "once the faults are over, everything goes on",
    "crash": "no task of a broker ends with an exception that nobody expects",
}
"""Every rule by its name."""


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int


class Row(NamedTuple):
    """One record in a reader's result or in a log."""

    offset: int
    value: bytes
    producer_id: int
    sequence: int


class Violation(NamedTuple):
    """A broken rule, and the observation that shows it."""

    rule: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.sentence}"


class History:
    """Observations of one simulation."""

    def __init__(self) -> None:
        self.gone: dict[Place, list[Row]] = {}
        """The records of partitions that are to be deleted, or are."""
        self.violations: list[Violation] = []
        self.acknowledged: dict[Place, dict[int, bytes]] = defaultdict(dict)
        self.counts: dict[str, int] = defaultdict(int)
        self._seen: dict[Place, dict[int, bytes]] = defaultdict(dict)
        self._marks: dict[tuple[str, Place, int], int] = {}
        self._leaders: dict[tuple[Place, int], str] = {}
        self._sent: dict[tuple[Place, str], list[bytes]] = defaultdict(list)
        self._transactions: dict[bytes, tuple[int, str]] = {}
        self._owners: dict[tuple[str, Place], tuple[str, int]] = {}
        self._claims: dict[tuple[str, Place, str, int], tuple[str, int] | None] = {}
        """Who owned a partition when a commit of it was sent."""
        self._offsets: dict[tuple[str, Place], GroupOffset] = defaultdict(GroupOffset)
        self._processed: dict[tuple[str, bytes], int] = defaultdict(lambda: -1)
        self._epochs: dict[tuple[Place, int], bytes] = {}
        self._deleted: dict[bytes, int] = defaultdict(int)
        self.all_sent: dict[Place, set[bytes]] = defaultdict(set)
        self._unread: dict[Place, int] = {}
        self.damaged: set[Place] = set()
        """Partitions that have a damaged segment on one broker."""
        self.is_told: Callable[[Place], bool] = lambda place: False
        """Whether a broker reported a problem with a partition."""
        self.when_broken: Callable[[str], object] = lambda rule: None
        """Called with each rule that does not hold."""

    def break_rule(self, rule: str, sentence: str) -> None:
        """A rule is broken."""
        assert rule in RULES, rule
        if sum(each.rule == rule for each in self.violations) < MOST_OF_A_RULE:
            self.violations.append(Violation(rule, sentence))
        self.when_broken(rule)

    # ---- producers ----

    def sent(self, place: Place, producer: str, values: Iterable[bytes]) -> None:
        """An idempotent producer sends new records, in this order."""
        rows = list(values)
        self._sent[place, producer] += rows
        self.all_sent[place].update(rows)

    def was_acknowledged(self, place: Place, base_offset: int, values: list[bytes]) -> None:
        """A broker acknowledged the records: all in-sync replicas have them."""
        self.counts["acknowledged"] += len(values)
        for offset, value in enumerate(values, base_offset):
            self.acknowledged[place][offset] = value
            self._saw(place, offset, value, "acknowledged")

    # ---- readers ----

    def was_read(self, place: Place, offset: int, value: bytes) -> None:
        """A consumer received a record."""
        self.counts["read"] += 1
        if place in self.all_sent and value not in self.all_sent[place]:
            self.break_rule("wrong_record", f"{place} has {value!r} at {offset}; nobody sent it")
            return
        self._saw(place, offset, value, "read")

    def has_told_loss(self, place: Place) -> bool:
        """Whether a partition was damaged and a broker has reported it."""
        return place in self.damaged and self.is_told(place)

    def was_skipped(self, place: Place, offset: int, found: int) -> None:
        """A reader of a partition without gaps requested an offset and received a later one."""
        if not self.has_told_loss(place):
            self.break_rule("silent_loss", f"{place}: {found} came after {offset - 1}, and no word")

    def not_read(self, place: Place, offset: int, problem: object) -> None:
        """At the end, the rest of a partition cannot be read, and readers get an error."""
        self._unread[place] = offset
        if place not in self.damaged:
            self.break_rule("silent_loss", f"{place} can't be read at {offset}: {problem}")

    def was_processed(self, group: str, values: Iterable[bytes]) -> None:
        """A member of a group has read records of a partition that it owns. It may read them
        again.
        """
        for value in values:
            if value.startswith(KEYED):
                _, key, number = value.split(b":")
                last = self._processed[group, key]
                if int(number) > last + 1:
                    self.break_rule(
                        "key_order", f"{group} reads {value!r} and has read {key!r} up to {last}"
                    )
                self._processed[group, key] = max(last, int(number))

    def belongs(self, place: Place, topic_id: bytes, value: bytes, where: str) -> None:
        """A record was found in the topic with that id."""
        if value.startswith(STAMPED) and value.split(b":")[1] != topic_id:
            self.break_rule("recreated", f"{value!r} is in {place} of topic {topic_id!r}, {where}")

    def has_epoch(self, place: Place, partition_epoch: int, topic_id: bytes) -> None:
        """A broker says that this is the epoch of the partition in the topic with that id
        (KIP-232).
        """
        known = self._epochs.setdefault((place, partition_epoch), topic_id)
        if known != topic_id:
            self.break_rule(
                "recreated", f"epoch {partition_epoch} of {place} is {known!r}'s and {topic_id!r}'s"
            )

    def meant(self, place: Place, epoch: int, found: int, what: str) -> None:
        """Was a request for the partition of one epoch answered for the partition of another?"""
        self.counts["asked by name and epoch"] += 1
        if epoch != found:
            self.break_rule("other_life", f"{what} of {place} meant {epoch}, and is of {found}")

    def deletes(self, topic_id: bytes, offset: int) -> None:
        """A client requests the deletion of the records below an offset of that topic's
        partition.
        """
        self._deleted[topic_id] = max(self._deleted[topic_id], offset)

    def begins(self, place: Place, topic_id: bytes, log_start_offset: int) -> None:
        """A broker's log of the topic with that id begins at this offset."""
        asked = self._deleted[topic_id]
        if log_start_offset > asked:
            self.break_rule(
                "other_life",
                f"{place} of {topic_id!r} begins at {log_start_offset}; {asked} was asked for",
            )

    def _saw(self, place: Place, offset: int, value: bytes, how: str) -> None:
        known = self._seen[place].setdefault(offset, value)
        if known != value:
            self.break_rule(
                "offset_reused",
                f"{place.topic}-{place.partition} offset {offset} was {known!r} and is {how} "
                f"as {value!r}",
            )

    # ---- brokers ----

    def high_watermark(self, life: str, place: Place, leader_epoch: int, mark: int) -> None:
        """A broker that leads a partition has this high watermark."""
        key = (life, place, leader_epoch)
        known = self._marks.get(key, -1)
        if mark < known:
            self.break_rule(
                "high_watermark",
                f"{life} led {place} in epoch {leader_epoch} with {known}, then with {mark}",
            )
        self._marks[key] = mark

    def leads(self, node: str, place: Place, leader_epoch: int) -> None:
        """A broker acts as leader."""
        known = self._leaders.setdefault((place, leader_epoch), node)
        if known != node:
            self.break_rule(
                "one_leader", f"{known} and {node} both led {place} in epoch {leader_epoch}"
            )

    # ---- transactions ----

    def transaction(self, name: str, values: Iterable[bytes], outcome: str) -> None:
        """The outcome of the records of a transaction: committed, aborted or unknown."""
        rows = list(values)
        self.counts[f"transactions {outcome}"] += 1
        for value in rows:
            self._transactions[value] = (len(rows), f"{outcome} {name}")

    # ---- groups ----

    def owns(self, group: str, place: Place, member: str) -> None:
        """A member begins to own a partition."""
        self.counts["assignments"] += 1
        known = self._owners.get((group, place), (member, 0))[0]
        if known != member:
            self.break_rule(
                "one_owner", f"{member} got {place} of {group} while {known} had not given it up"
            )
        self._owners[group, place] = member, self.counts["assignments"]

    def disowns(self, group: str, place: Place, member: str) -> None:
        """A member revokes a partition, before it reports that to the coordinator."""
        if self._owners.get((group, place), ("", 0))[0] == member:
            del self._owners[group, place]

    def commit_sent(self, group: str, place: Place, offset: int, member: str) -> None:
        """An offset is about to be committed; here the offsets of a group only increase."""
        self._offsets[group, place].sent(member, offset)
        self._claims[group, place, member, offset] = self._owners.get((group, place))

    def commit_answered(
        self, group: str, place: Place, offset: int, member: str, code: int
    ) -> None:
        """A commit was acknowledged or refused. If it was refused, the member has not owned the
        partition all the time.
        """
        acknowledged = code == ErrorCode.NONE
        owner = self._claims.pop((group, place, member, offset))
        is_owner = owner is not None and owner[0] == member
        if is_owner and owner == self._owners.get((group, place)):
            self.counts["commits of owners"] += 1
            if not acknowledged and code not in NO_DECISION:
                self.break_rule(
                    "owners_commit",
                    f"{member} owns {place} of {group}, and {offset} is refused "
                    f"with {error_name(code)}",
                )
        self.counts["commits"] += acknowledged
        self._offsets[group, place].answered(member, offset, acknowledged=acknowledged)

    def is_gone(self, place: Place) -> bool:
        """Whether a partition is deleted or will be: nothing more is expected of it."""
        return place in self.gone

    def asks_commit(self, group: str, place: Place) -> Asked:
        """The offset of a group is about to be requested."""
        return Asked(self._offsets[group, place].low, self._owners.get((group, place)))

    def found_commit(self, group: str, place: Place, offset: int, asked: Asked) -> None:
        """The offset of a group was reported; ``asked`` is the state before the request."""
        known = self._offsets[group, place]
        if place in self.gone:
            return
        if not known.found(offset, asked, self._owners.get((group, place))):
            self.break_rule(
                "commits",
                f"{group} has {offset} for {place}; {asked.low} was acknowledged, "
                f"{known.high} sent",
            )

    # ---- the end ----

    def check_logs(self, logs: dict[Place, list[Row]]) -> None:
        """The partitions as they are at the end."""
        for place, rows in logs.items():
            at = {row.offset: row.value for row in rows}
            for row in rows:
                if place in self.all_sent and row.value not in self.all_sent[place]:
                    self.break_rule("wrong_record", f"{place}: nobody sent {row.value!r}")
            for offset, value in self.acknowledged[place].items():
                if offset not in at and place in self.damaged:
                    self._missing(place, offset, value)
                elif at.get(offset) != value:
                    self.break_rule(
                        "acknowledged",
                        f"{place.topic}-{place.partition} offset {offset} was acknowledged as "
                        f"{value!r} and is {at.get(offset)!r}",
                    )
            for offset, value in self._seen[place].items():
                if offset in at and at[offset] != value:
                    self._saw(place, offset, at[offset], "at the end")
            self._check_order(place, rows)

    def _missing(self, place: Place, offset: int, value: bytes) -> None:
        if self.is_told(place) or offset >= self._unread.get(place, offset + 1):
            self.counts["losses told"] += 1
        else:
            name = f"{place.topic}-{place.partition}"
            self.break_rule("silent_loss", f"{name} has no {value!r} at {offset}, and no word")

    def _check_order(self, place: Place, rows: list[Row]) -> None:
        where: dict[bytes, int] = {}
        for row in rows:
            if row.value in where:
                self.break_rule(
                    "duplicate",
                    f"{place.topic}-{place.partition} has {row.value!r} at {where[row.value]} "
                    f"and at {row.offset}",
                )
            where[row.value] = row.offset
        for (sent_to, producer), values in self._sent.items():
            if sent_to != place:
                continue
            found = [where[value] for value in values if value in where]
            if found != sorted(found):
                self.break_rule(
                    "duplicate", f"{place}: records of {producer} are not in the order sent"
                )

    def check_keys(self, written: list[bytes], ends: Mapping[str, int]) -> None:
        """A growing topic at the end: all partitions together have the records of each key, up to
        the acknowledged number, once each.
        """
        found: dict[bytes, int] = defaultdict(int)
        for value in written:
            found[value] += 1
            if found[value] > 1:
                self.break_rule("duplicate", f"{value!r} is in the growing topic twice")
        for key, end in ends.items():
            for number in range(end):
                value = b"%s%s:%d" % (KEYED, key.encode(), number)
                if value not in found:
                    self.break_rule("acknowledged", f"{value!r} is not in the growing topic")

    def check_replicas(self, place: Place, replicas: dict[str, list[tuple[int, bytes]]]) -> None:
        """Batches below the high watermarks of a partition's replicas: (base offset, bytes)."""
        names = sorted(replicas)
        if place in self.damaged:
            self._check_damaged(place, replicas)
            return
        for name, other in pairwise(names):
            for one, two in zip(replicas[name], replicas[other], strict=False):
                if one != two:
                    self.break_rule(
                        "prefixes",
                        f"{place}: {name} has a batch at {one[0]} where {other} has another at "
                        f"{two[0]}",
                    )
                    break

    def check_exact(
        self, place: Place, source: Sequence[Any], copy: Sequence[Any], who: str
    ) -> None:
        """The records of a partition, and those of its exact copy up to the same end."""
        for ours, theirs in zip_longest(source, copy):
            if ours != theirs:
                self.break_rule(
                    "exact_copy", f"{place}: {who} has {theirs!r:.80}, the source {ours!r:.80}"
                )
                return

    def _check_damaged(self, place: Place, replicas: dict[str, list[tuple[int, bytes]]]) -> None:
        """A damaged replica may lack batches; the batches that it has are equal to the others'."""
        for (name, ones), (other, twos) in pairwise(sorted(replicas.items())):
            there = dict(ones)
            for offset, batch in twos:
                if there.get(offset, batch) != batch:
                    self.break_rule(
                        "prefixes", f"{place}: {name} and {other} have other batches at {offset}"
                    )
                    break

    def check_visible(self, visible: dict[Place, list[Row]]) -> None:
        """What read_committed consumers see at the end."""
        seen: dict[str, set[bytes]] = defaultdict(set)
        for rows in visible.values():
            for row in rows:
                if row.value in self._transactions:
                    seen[self._transactions[row.value][1]].add(row.value)
        of: dict[str, int] = {name: size for size, name in self._transactions.values()}
        for name, size in of.items():
            count = len(seen[name])
            outcome = name.partition(" ")[0]
            if count not in (0, size):
                self.break_rule("atomic", f"{count} of {size} records of {name} are visible")
            elif outcome == "committed" and count == 0 and size:
                self.break_rule("atomic", f"nothing of {name} is visible")
            elif outcome == "aborted" and count:
                self.break_rule("atomic", f"{name} is visible")

    def check_copy(self, inputs: list[bytes], outputs: list[bytes]) -> None:
        """The output of a transactional copy, read committed, compared with its input."""
        wanted = set(inputs)
        found: dict[bytes, int] = defaultdict(int)
        for value in outputs:
            found[value] += 1
        for value, count in found.items():
            if count > 1:
                self.break_rule("exactly_once", f"{value!r} is in the output {count} times")
            if value not in wanted:
                self.break_rule("exactly_once", f"{value!r} is in the output, not in the input")
        for value in wanted - set(found):
            self.break_rule("exactly_once", f"{value!r} is missing in the output")
