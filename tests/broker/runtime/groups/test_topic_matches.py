"""The topics that expressions match: in slices, once for each set of topics, in little memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kstore.broker.runtime.groups import topic_matches
from kstore.broker.runtime.groups.topic_matches import SLICE_STEPS, TopicMatches
from kstore.broker.state.linear_regex import LinearRegex


class Image:
    """Topics and a version. Nothing else of the image is used."""

    def __init__(self, *names: str) -> None:
        self.topics: dict[str, Any] = dict.fromkeys(names)
        self.version = 1

    def change(self, *names: str) -> None:
        self.topics = dict.fromkeys(names)
        self.version += 1


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics that were matched with an expression."""
    names: list[str] = []
    matches = LinearRegex.matches

    def seen(self: LinearRegex, text: str) -> bool:
        names.append(text)
        return matches(self, text)

    monkeypatch.setattr(LinearRegex, "matches", seen)
    return names


def prepare(found: TopicMatches, image: Any, *regexes: str) -> int:
    """Match, and count the turns of other tasks."""

    async def run() -> int:
        turns = 0
        work = asyncio.ensure_future(found.prepare(regexes, image))
        while not work.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    return asyncio.run(run())


def test_an_expression_is_matched_once_for_the_same_topics(met: list[str]) -> None:
    found, image = TopicMatches(), Image("a1", "a2", "b")
    assert prepare(found, image, "a.*") > 0
    assert sorted(met) == ["a1", "a2", "b"]
    image.version += 1  # the leader of some partition has changed
    assert found.matched("a.*", image) == {"a1", "a2"}  # type: ignore[arg-type]
    assert len(met) == 3


def test_only_new_topics_are_looked_at(met: list[str]) -> None:
    found, image = TopicMatches(), Image("a1", "a2", "b")
    prepare(found, image, "a.*")
    met.clear()
    image.change("a2", "b", "a3", "c")
    assert found.matched("a.*", image) == {"a2", "a3"}  # type: ignore[arg-type]
    assert sorted(met) == ["a3", "c"]


@pytest.mark.slow
def test_others_have_a_turn_after_so_many_steps() -> None:
    image, regex = Image(*(f"topic-{number:040}" for number in range(2000))), "(a|b|.{300})*"
    steps = sum(LinearRegex(regex).cost(name) for name in image.topics)
    assert steps > 10 * SLICE_STEPS
    assert prepare(TopicMatches(), image, regex) >= steps // (2 * SLICE_STEPS)


def test_what_is_lacking_is_what_was_not_prepared() -> None:
    found, image = TopicMatches(), Image("a")
    prepare(found, image, "a", "b")
    assert found.lacks(["a", "b", "c"]) == {"c"}


def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_matches, "MAX_REMEMBERED_BYTES", 10_000)
    found, image = TopicMatches(), Image("a", "b")
    prepare(found, image, *(f"(a|b){{1,{number}}}" for number in range(1, 100)))
    assert 10 < len(found) < 40
    found.matched("x" * 20_000, image)  # type: ignore[arg-type]
    assert len(found) == 1
