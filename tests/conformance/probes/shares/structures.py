"""Probes of the requests of share groups: all refusals of heartbeats and descriptions, and offsets
and fetches with topics, partitions and ranges from seeds, with repetitions.
"""

from __future__ import annotations

import random
import uuid
from typing import Any

from kstore.protocol.schema import Message
from tests.conformance.probes.data import fill
from tests.conformance.probes.shares.stories import FINAL, acquires, fetch, ready
from tests.conformance.probes.story import Peer, Step, Story, case
from tests.conformance.probes.topics import create
from tests.plain_messages import Ask

MEMBERS = [str(uuid.UUID(int=number)) for number in (1, 2, 3)]
ABSENT = "probe-share-absent"


def beat(group: str, member: str, epoch: int, *topics: str) -> Any:
    """A heartbeat; without topics the subscription stays the same."""
    return Ask.ShareGroupHeartbeat(
        group_id=group, member_id=member, member_epoch=epoch,
        subscribed_topic_names=list(topics) or None,
    )  # fmt: skip


def _each(requests: list[Any]) -> Story:
    """Yield the requests one by one; a story cannot `yield from` a list."""
    for request in requests:
        _ = yield request


@case("Structures of share groups", 76)
def _heartbeats(peer: Peer, version: int) -> Story:
    name = f"probe-share-beats-{version}"
    one, two, other = MEMBERS
    yield Step(create(name, 2), compare=False)
    refused = [
        beat("", one, 0, name), beat(name, "", 0, name), beat(name, "x" * 37, 0, name),
        beat(name, one, 0), beat(name, one, -2, name), beat(name, one, 3, name),
        beat(ABSENT, one, 1, name), beat(ABSENT, one, -1),
    ]  # fmt: skip
    yield from _each(refused)
    empty = beat(name, one, 0, name)
    empty.subscribed_topic_names = []
    yield empty
    empty.subscribed_topic_names, empty.rack_id = [name], ""
    yield empty
    joins = beat(name, one, 0, name)
    told: Any = yield Step(joins, until=lambda answer: answer.assignment is not None, compare=False)
    epoch = told.member_epoch if told else 0
    yield Step(beat(name, one, epoch), compare=False)
    for number in (epoch - 1, epoch, epoch + 1, 1000):
        yield beat(name, one, number)
    yield beat(name, two, epoch)
    yield beat(name, one, epoch, name, name)
    yield Ask.ShareGroupDescribe(group_ids=[name, ABSENT, "", name])
    yield Ask.ShareGroupDescribe(group_ids=[])
    yield Ask.ShareGroupDescribe(group_ids=[name], include_authorized_operations=True)
    yield Ask.JoinGroup(
        group_id=name, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id="",
        protocol_type="consumer",
    )  # fmt: skip
    yield beat(name, other, -1)
    yield beat(name, one, -1)
    yield beat(name, one, -1)
    yield Ask.ShareGroupDescribe(group_ids=[name])


def _described(group: str, *topics: tuple[str, list[int]]) -> Message:
    rows = [{"topic_name": name, "partitions": indexes} for name, indexes in topics]
    return Ask.DescribeShareGroupOffsets(groups=[{"group_id": group, "topics": rows}])


def _altered(group: str, *topics: tuple[str, list[tuple[int, int]]]) -> Any:
    rows = []
    for name, places in topics:
        parts = [{"partition_index": index, "start_offset": offset} for index, offset in places]
        rows.append({"topic_name": name, "partitions": parts})
    return Ask.AlterShareGroupOffsets(group_id=group, topics=rows)


def _deleted(group: str, *topics: str) -> Message:
    rows = [{"topic_name": name} for name in topics]
    return Ask.DeleteShareGroupOffsets(group_id=group, topics=rows)


@case("Structures of share groups' offsets", 90)
def _offsets(peer: Peer, version: int) -> Story:
    own = [f"probe-share-offsets-{kind}-{version}" for kind in "ab"]
    group = own[0]
    for name in own:
        yield Step(create(name, 2), compare=False)
        for request in fill(name):
            yield Step(request, version=9, compare=False)
    refused = [
        _described(ABSENT, (own[0], [0])), _described("", (own[0], [0])),
        _altered("", (own[0], [(0, 1)])), _deleted("", own[0]), _deleted(ABSENT, own[0]),
        Ask.DescribeShareGroupOffsets(groups=[]),
    ]  # fmt: skip
    yield from _each(refused)
    first = _altered(group, (own[0], [(0, 2), (1, 0)]))
    yield Step(first, until=lambda answer: answer.error_code == 0)
    draw = random.Random(version)
    for _ in range(8):
        names = draw.sample([*own, ABSENT], draw.randint(1, 3))
        yield _altered(
            group,
            *((name, [(index, draw.randint(0, 9)) for index in draw.sample([0, 1], 1)])
              for name in names),
        )  # fmt: skip
        yield _described(group, *((name, draw.sample([0, 1], 2)) for name in names))
    everything = {"group_id": group, "topics": None}
    yield Ask.DescribeShareGroupOffsets(groups=[everything])
    yield _deleted(group, own[1], ABSENT)
    yield _described(group, (own[0], [0, 1]), (own[1], [0]))
    yield _deleted(group, own[0])
    yield Ask.DescribeShareGroupOffsets(groups=[everything, everything])


def _ranges(draw: random.Random) -> list[dict[str, Any]]:
    """Ranges, ascending and apart or not, with existing types."""
    found = []
    at = 0
    for _ in range(draw.randint(0, 2)):
        first = at + draw.choice([0, 0, 1])
        last = first + draw.choice([0, 1, 2])
        count = draw.choice([1, last - first + 1])
        types = [draw.choice([1, 1, 2, 3]) for _ in range(count)]
        found.append({"first_offset": first, "last_offset": last, "acknowledge_types": types})
        at = last + draw.choice([1, 1, 0])
    return found


@case("Structures of ShareFetch", 78)
def _fetches(peer: Peer, version: int) -> Story:
    """A session of two topics with random requests. Acquired and acknowledged records stay equal
    only while both brokers decide each range in the same way.
    """
    name, member = f"probe-share-several-{version}", MEMBERS[0]
    yield from ready(name, member)
    topic = peer.topic_id(name)
    draw = random.Random(version)
    yield Step(fetch(name, member, 0, topic), until=acquires(4))
    for epoch in range(1, 16):
        rows = [
            {"partition_index": 0, "acknowledgement_batches": _ranges(draw)}
            for _ in range(draw.choice([0, 1, 1]))
        ]
        rows += [{"partition_index": 1}] * draw.choice([0, 1, 2])
        draw.shuffle(rows)
        request = Ask.ShareFetch(
            group_id=name, member_id=member, share_session_epoch=epoch, max_wait_ms=50,
            min_bytes=1, max_bytes=1 << 20, max_records=2, batch_size=2,
            topics=[{"topic_id": topic, "partitions": rows}] if rows else [],
        )  # fmt: skip
        yield request
    yield fetch(name, member, FINAL, None, max_wait_ms=0, min_bytes=0, max_bytes=0, max_records=0)
