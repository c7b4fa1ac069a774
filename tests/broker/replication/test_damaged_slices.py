"""Damage inside a batch that the broker has sent without checking. A second fetch of the same
offset makes it check the checksums. Good records are sent, the damage is reported, and readers get
past it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kstore.errors import ErrorCode
from kstore.record import batches
from tests.broker.replication.test_scripted_follower import FETCH_VERSION, FOLLOWER, LEADER, Peer
from tests.broker.runtime.replication.replication_harness import TOPIC_ID, Node, new_image, run
from tests.record_requests import fetch_part, fetch_request, only

BATCHES, DAMAGED = 20, 12
CORRUPT = ErrorCode.CORRUPT_MESSAGE
BOTH_WAYS = pytest.mark.parametrize("size", [100, 60_000], ids=["copied", "by sendfile"])
Fetched = tuple[int, list[int]]


class Place:
    """A leader whose log has a damaged batch, and a connection to it."""

    def __init__(self, node: Node, peer: Peer, size: int, damage: Callable[[], None]) -> None:
        self.node, self.peer, self.size, self.damage = node, peer, size, damage

    async def fetch(self, offset: int, count: int = BATCHES, *, node: int = -1) -> Fetched:
        """The error code and the offsets of ``count`` batches at most, from an offset on."""
        part = fetch_part(offset, max_bytes=count * (self.size + 75))
        asked = fetch_request(TOPIC_ID, part, node=node, epoch=1)
        self.peer.send(FETCH_VERSION, asked)
        answer = only(await self.peer.answer())
        found = batches(answer.records or b"")
        return answer.error_code, [view.base_offset for view in found]

    async def rest_is_reached(self, node: int = -1) -> bool:
        """Whether the damage is reported once, and the records after it are sent."""
        named = await self.fetch(DAMAGED, node=node) == (CORRUPT, [])
        behind = await self.fetch(DAMAGED + 1, node=node)
        return (
            named and behind == (0, [*range(DAMAGED + 1, BATCHES)]) and self.node.dir.damages == 1
        )


def flip(file: Path, batch: int) -> None:
    """Damage the batch at a position."""
    with file.open("r+b") as opened:
        opened.seek(batch + 80)
        opened.write(b"!")


def with_damage(
    tmp_path: Path,
    size: int,
    story: Callable[[Place], Awaitable[None]],
    *,
    sealed: bool,
    later: bool = False,
) -> None:
    """Run a story with a leader whose log has a damaged batch. ``later``: the story damages it."""

    async def whole() -> None:
        node = Node(LEADER, tmp_path / "leader", new_image())
        await node.start()
        node.lead(0, 0, (LEADER, FOLLOWER), (LEADER,))
        log: Any = node.partition().log
        for number in range(BATCHES):
            log.append(b"%d" % (number % 10) * size)
        node.partition().take_high_watermark(BATCHES)
        file = Path(log.segments[0].path)
        start = [view.position for view in batches(file.read_bytes())][DAMAGED]
        if not later:
            flip(file, start)
        if sealed:
            log.roll()
        peer = await Peer.to(node)
        try:
            await story(Place(node, peer, size, partial(flip, file, start)))
        finally:
            peer.close()
            node.stop()

    run(whole)


@BOTH_WAYS
@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "just written"])
def test_a_follower_that_asks_again_gets_what_is_before_and_behind(
    tmp_path: Path, size: int, sealed: bool
) -> None:
    async def story(place: Place) -> None:
        assert await place.fetch(0, node=FOLLOWER) == (0, [*range(BATCHES)])  # which it refuses
        assert place.node.dir.damages == 0
        assert await place.fetch(0, node=FOLLOWER) == (0, [*range(DAMAGED)])
        assert await place.rest_is_reached(FOLLOWER)

    with_damage(tmp_path, size, story, sealed=sealed)


@BOTH_WAYS
def test_a_follower_that_goes_on_costs_no_look_at_checksums(tmp_path: Path, size: int) -> None:
    async def story(place: Place) -> None:
        for offset in range(0, BATCHES, 5):
            expected = [*range(offset, offset + 5)]
            assert await place.fetch(offset, 5, node=FOLLOWER) == (0, expected)
        assert place.node.dir.damages == 0
        assert await place.fetch(15, 5, node=FOLLOWER) == (0, [*range(15, 20)])
        assert await place.fetch(10, 5, node=FOLLOWER) == (0, [*range(10, 15)])

    with_damage(tmp_path, size, story, sealed=False)


@BOTH_WAYS
@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "just written"])
def test_a_consumer_that_begins_is_sent_what_was_checked(
    tmp_path: Path, size: int, sealed: bool
) -> None:
    async def story(place: Place) -> None:
        assert await place.fetch(0) == (0, [*range(DAMAGED)])
        assert await place.rest_is_reached()

    with_damage(tmp_path, size, story, sealed=sealed)


@BOTH_WAYS
def test_what_was_good_once_is_looked_at_again_a_second_later(tmp_path: Path, size: int) -> None:
    async def story(place: Place) -> None:
        assert await place.fetch(0) == (0, [*range(BATCHES)])
        place.damage()
        await asyncio.sleep(1.2)
        assert await place.fetch(0) == (0, [*range(DAMAGED)])
        assert await place.rest_is_reached()

    with_damage(tmp_path, size, story, sealed=True, later=True)


@BOTH_WAYS
def test_a_consumer_that_gets_no_further_gets_past_the_damage(tmp_path: Path, size: int) -> None:
    async def story(place: Place) -> None:
        for offset in (0, 5, 10):
            expected = [*range(offset, offset + 5)]
            assert await place.fetch(offset, 5) == (0, expected)
        assert place.node.dir.damages == 0
        assert await place.fetch(10, 5) == (0, [10, 11])
        assert await place.rest_is_reached()

    with_damage(tmp_path, size, story, sealed=True)


@BOTH_WAYS
def test_many_readers_of_what_was_just_written_make_it_look_once(tmp_path: Path, size: int) -> None:
    async def story(place: Place) -> None:
        assert await place.fetch(0, 10) == (0, [*range(10)])
        for _ in range(8):
            assert await place.fetch(10, 5) == (0, [*range(10, 15)])
        assert await place.fetch(10, 5) == (0, [10, 11])
        assert await place.rest_is_reached()

    with_damage(tmp_path, size, story, sealed=False)


@BOTH_WAYS
def test_what_was_good_a_while_ago_is_not_looked_at_again_for_a_consumer(
    tmp_path: Path, size: int
) -> None:
    async def story(place: Place) -> None:
        log: Any = place.node.partition().log
        file = Path(log.segments[0].path)
        assert await place.fetch(0) == (0, [*range(DAMAGED)])
        good = [view.position for view in batches(file.read_bytes())][3]
        with file.open("r+b") as opened:
            opened.seek(good + 80)
            opened.write(b"!")
        assert await place.fetch(0) == (0, [*range(DAMAGED)])
        assert await place.fetch(0, node=FOLLOWER) == (0, [*range(DAMAGED)])
        assert await place.fetch(0, node=FOLLOWER) == (0, [0, 1, 2])  # it could not append that

    with_damage(tmp_path, size, story, sealed=True)
