"""Matching topics' names against a regular expression in linear time, whatever the expression: an
automaton whose sets of states become a table as they are met.

Python's own engine goes back on its steps, and one expression from a client could keep the broker
busy for hours.
"""

from __future__ import annotations

from collections.abc import Iterable

from kstore.broker.state.regex_syntax import (
    Alternatives,
    Assertion,
    Characters,
    Node,
    Repeat,
    Sequence,
    parse,
)

__all__ = ["TopicRegex", "regex_error"]

MAX_TABLE = 4096
"""Sets of states that are remembered; beyond it the table is begun anew."""
WORD = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")


def regex_error(text: str) -> str | None:
    """What is wrong with an expression, in RE2's words, or None."""
    tree = parse(text)
    return tree if isinstance(tree, str) else None


class TopicRegex:
    """An expression, ready to match whole names. An invalid one matches nothing."""

    def __init__(self, text: str) -> None:
        # A step is (characters, next state); or, without characters, an assertion or free steps.
        self._characters: list[frozenset[str]] = []
        self._assertions: list[str] = []
        self._targets: list[tuple[int, ...]] = []
        tree = parse(text)
        self._end = self._state()
        self._start = self._end if isinstance(tree, str) else self._build(tree, self._end)
        self._valid = not isinstance(tree, str)
        self._table: dict[tuple[frozenset[int], bool, str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        if not self._valid:
            return False
        states = frozenset({self._start})
        after_word = False
        for index, character in enumerate(name):
            # The start of the name is told apart by a flag in the key: an empty character.
            key = (states, after_word, character if index else f"^{character}")
            following = self._table.get(key)
            if following is None:
                if len(self._table) >= MAX_TABLE:
                    self._table.clear()
                reached = self._closure(states, index == 0, after_word, character)
                following = self._table[key] = frozenset(
                    self._targets[state][0]
                    for state in reached
                    if character in self._characters[state]
                )
            if not following:
                return False
            states = following
            after_word = character in WORD
        return self._end in self._closure(states, not name, after_word, "")

    def filter(self, names: Iterable[str]) -> frozenset[str]:
        """The names that match."""
        return frozenset(name for name in names if self.matches(name))

    def _closure(
        self, states: frozenset[int], at_start: bool, after_word: bool, character: str
    ) -> set[int]:
        """All states that are reached without taking a character; none is next at the end."""
        boundary = after_word != (character in WORD)
        holds = {
            "": True,
            "start": at_start,
            "end": not character,
            "boundary": boundary,
            "no boundary": not boundary,
        }
        reached: set[int] = set()
        todo = list(states)
        while todo:
            state = todo.pop()
            if state in reached:
                continue
            reached.add(state)
            if not self._characters[state] and holds[self._assertions[state]]:
                todo += self._targets[state]
        return reached

    def _state(
        self,
        *targets: int,
        characters: frozenset[str] = frozenset(),
        assertion: str = "",
    ) -> int:
        self._characters.append(characters)
        self._assertions.append(assertion)
        self._targets.append(targets)
        return len(self._targets) - 1

    def _build(self, node: Node, following: int) -> int:
        """The state from which a node leads to ``following``."""
        if isinstance(node, Characters):
            if not node.allowed:
                return self._state()  # leads nowhere
            return self._state(following, characters=node.allowed)
        if isinstance(node, Assertion):
            return self._state(following, assertion=node.place)
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                following = self._build(part, following)
            return following
        if isinstance(node, Alternatives):
            return self._state(*[self._build(part, following) for part in node.parts])
        return self._build_repeat(node, following)

    def _build_repeat(self, node: Repeat, following: int) -> int:
        if node.most is None:
            loop = self._state()
            self._targets[loop] = (self._build(node.part, loop), following)
            following = loop
        else:
            end = following
            for _ in range(node.most - node.least):
                following = self._state(self._build(node.part, following), end)
        for _ in range(node.least):
            following = self._build(node.part, following)
        return following
