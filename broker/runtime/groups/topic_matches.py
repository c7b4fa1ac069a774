"""The topics that groups' regular expressions match. Expressions are matched in slices, so that
other work can run, and the results are cached for one set of topics. When topics are created or
deleted, only these are matched.

A group does not get every match: see regex_rights.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from kstore.broker.state.linear_regex import LinearRegex

if TYPE_CHECKING:
    from kstore.broker.state.metadata.image import MetadataImage

__all__ = ["MAX_REMEMBERED_BYTES", "SLICE_STEPS", "TopicMatches"]

SLICE_STEPS = 100_000
"""The limit of steps of the automaton in one turn of the loop. They take about a millisecond."""
MAX_REMEMBERED_BYTES = 16 * 1024 * 1024
"""The memory limit for all expressions and their results. Beyond it, the oldest are dropped."""
BYTES_PER_NAME = 64
"""The size of a name in a result, without its text, which the image has."""


class _Found(NamedTuple):
    """What an expression matches."""

    names: frozenset[str]
    """The topics at that time."""
    matched: frozenset[str]

    def bytes_of(self, regex: str) -> int:
        """Its approximate size."""
        return len(regex) + BYTES_PER_NAME * len(self.matched) + 256


class TopicMatches:
    """The matches of expressions among the topics of one broker's image."""

    def __init__(self) -> None:
        self._found: dict[str, _Found] = {}
        self._bytes = 0
        self._names: frozenset[str] = frozenset()
        self._version = -1
        self._turn = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._found)

    def matched(self, regex: str, image: MetadataImage) -> frozenset[str]:
        """The topics that the expression matches. Takes long if `prepare` has not matched it
        before.
        """
        names = self._names_of(image)
        known = self._found.get(regex)
        if known is not None and known.names is names:
            return known.matched
        if known is None:
            return self._remember(regex, _Found(names, LinearRegex(regex).filter(names)))
        new = LinearRegex(regex).filter(names - known.names)
        return self._remember(regex, _Found(names, (known.matched & names) | new))

    def lacks(self, regexes: Iterable[str]) -> set[str]:
        """The expressions that `prepare` has not matched, or that were dropped."""
        return set(regexes) - self._found.keys()

    async def prepare(self, regexes: Iterable[str], image: MetadataImage) -> None:
        """Match these expressions with the current topics, in slices. Other calls wait
        meanwhile.
        """
        async with self._turn:
            for regex in self.lacks(regexes):
                names = self._names_of(image)
                expression = LinearRegex(regex)
                matched = []
                steps = 0
                for name in names:
                    if expression.matches(name):
                        matched.append(name)
                    steps += expression.cost(name)
                    if steps >= SLICE_STEPS:
                        await asyncio.sleep(0)
                        steps = 0
                self._remember(regex, _Found(names, frozenset(matched)))
                await asyncio.sleep(0)

    def _names_of(self, image: MetadataImage) -> frozenset[str]:
        """The names of all topics. Returns the same object until they change."""
        if image.version != self._version:
            self._version = image.version
            if image.topics.keys() != self._names:
                self._names = frozenset(image.topics)
        return self._names

    def _remember(self, regex: str, found: _Found) -> frozenset[str]:
        self._forget(regex)
        self._found[regex] = found
        self._bytes += found.bytes_of(regex)
        while self._bytes > MAX_REMEMBERED_BYTES and len(self._found) > 1:
            self._forget(next(iter(self._found)))
        return found.matched

    def _forget(self, regex: str) -> None:
        found = self._found.pop(regex, None)
        if found is not None:
            self._bytes -= found.bytes_of(regex)
