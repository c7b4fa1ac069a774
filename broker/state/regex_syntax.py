"""The syntax of RE2, as consumers use it to subscribe to topics: from text to a tree, or to what is
wrong with it. Matching is in topic_regex.

Only what can be in a topic's name is kept of a character class. What RE2 has not (back references,
looking around, possessive repeats) is refused, because it can't be matched in linear time.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

__all__ = [
    "LEGAL",
    "Alternatives",
    "Assertion",
    "Characters",
    "Node",
    "Repeat",
    "Sequence",
    "parse",
]

DIGITS = frozenset("0123456789")
LOWER = frozenset("abcdefghijklmnopqrstuvwxyz")
UPPER = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
WORD = DIGITS | LOWER | UPPER | {"_"}
LEGAL = WORD | frozenset(".-")
"""Every character that a topic's name may have."""

MAX_REPEAT = 1000
MAX_DEPTH = 200
MAX_SIZE = 20_000
"""Characters of an expression whose repeats are written out."""
PERL_CLASSES = {"d": DIGITS, "w": WORD, "s": frozenset[str]()}
POSIX_CLASSES = {
    "alnum": DIGITS | LOWER | UPPER,
    "alpha": LOWER | UPPER,
    "ascii": LEGAL,
    "blank": frozenset[str](),
    "cntrl": frozenset[str](),
    "digit": DIGITS,
    "graph": LEGAL,
    "lower": LOWER,
    "print": LEGAL,
    "punct": frozenset("._-"),
    "space": frozenset[str](),
    "upper": UPPER,
    "word": WORD,
    "xdigit": DIGITS | frozenset("abcdefABCDEF"),
}
CONTROL_ESCAPES = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
ASSERTIONS = {"A": "start", "z": "end", "b": "boundary", "B": "no boundary"}


class Characters(NamedTuple):
    """One character out of a set."""

    allowed: frozenset[str]


class Assertion(NamedTuple):
    """A place between characters: start, end, boundary, no boundary."""

    place: str


class Sequence(NamedTuple):
    """One after the other."""

    parts: tuple[Node, ...]


class Alternatives(NamedTuple):
    """One of them."""

    parts: tuple[Node, ...]


class Repeat(NamedTuple):
    """At least, and at most (None: no limit) so often."""

    part: Node
    least: int
    most: int | None


Node: TypeAlias = "Characters | Assertion | Sequence | Alternatives | Repeat"


class _InvalidError(Exception):
    """Raised within the parser only, with RE2's words for what is wrong."""


def parse(text: str) -> Node | str:
    """The tree of an expression, or RE2's words for what is wrong with it."""
    try:
        parser = _Parser(text)
        tree = parser.alternatives()
        if parser.more():
            raise _InvalidError("unexpected )")
        if _size(tree) > MAX_SIZE:
            raise _InvalidError("expression too large")
    except _InvalidError as invalid:
        return str(invalid)
    return tree


class _Parser:
    """Recursive descent over the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.fold_case = False
        self.depth = 0

    def more(self) -> bool:
        return self.at < len(self.text)

    def peek(self, prefix: str) -> bool:
        return self.text.startswith(prefix, self.at)

    def take(self, prefix: str) -> bool:
        found = self.peek(prefix)
        if found:
            self.at += len(prefix)
        return found

    def next(self) -> str:
        self.at += 1
        return self.text[self.at - 1]

    def alternatives(self) -> Node:
        fold_case = self.fold_case
        parts = [self.sequence()]
        while self.take("|"):
            parts.append(self.sequence())
        self.fold_case = fold_case
        return parts[0] if len(parts) == 1 else Alternatives(tuple(parts))

    def sequence(self) -> Node:
        parts: list[Node] = []
        while self.more() and not self.peek("|") and not self.peek(")"):
            if self.take("\\Q"):
                quoted, _, _ = self.text[self.at :].partition("\\E")
                parts += [self.literal(character) for character in quoted]
                self.at = min(self.at + len(quoted) + 2, len(self.text))
                if quoted:
                    parts.append(self.repeated(parts.pop()))
                continue
            atom = self.atom()
            if atom is not None:
                parts.append(self.repeated(atom))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def atom(self) -> Node | None:
        """The next thing that can be repeated; None for flags, which are no thing."""
        character = self.next()
        if character == "(":
            return self.group()
        if character == "[":
            return self.bracket()
        if character == "\\":
            return self.escape()
        if character in "*+?":
            raise _InvalidError("missing argument to repetition operator")
        if character == ".":
            return Characters(LEGAL)
        if character in "^$":
            return Assertion("start" if character == "^" else "end")
        if character == "{" and self.counts() is not None:
            raise _InvalidError("missing argument to repetition operator")
        return self.literal(character)

    def literal(self, character: str) -> Node:
        return Characters(self.folded(frozenset(character)) & LEGAL)

    def folded(self, characters: frozenset[str]) -> frozenset[str]:
        if not self.fold_case:
            return characters
        return characters | {character.swapcase() for character in characters}

    def repeated(self, atom: Node) -> Node:
        repeats = 0
        while self.more():
            start = self.at
            if self.take("*"):
                bounds: tuple[int, int | None] | None = (0, None)
            elif self.take("+"):
                bounds = (1, None)
            elif self.take("?"):
                bounds = (0, 1)
            else:
                bounds = self.counts() if self.take("{") else None
            if bounds is None:
                self.at = start
                return atom
            repeats += 1
            if repeats > 1:
                raise _InvalidError("invalid nested repetition operator")
            self.take("?")  # lazy or not is the same to a whole match
            atom = Repeat(atom, *bounds)
            if _copies(atom) > MAX_REPEAT:
                raise _InvalidError("invalid repeat count")
        return atom

    def counts(self) -> tuple[int, int | None] | None:
        """The bounds behind an opened brace; None, and nothing taken, if they are none."""
        end = self.text.find("}", self.at)
        least, comma, most = self.text[self.at : end].partition(",") if end >= 0 else ("", "", "")
        if not least.isdecimal() or (most and not most.isdecimal()):
            return None
        self.at = end + 1
        low = int(least)
        high = int(most) if most else None if comma else low
        if low > MAX_REPEAT or (high is not None and (high > MAX_REPEAT or high < low)):
            raise _InvalidError("invalid repeat count")
        return low, high

    def group(self) -> Node | None:
        fold_case = self.fold_case
        if self.take("?P<") or (self.peek("?<") and not self.peek("?<=") and not self.peek("?<!")):
            self.take("?<")
            name, closed, _ = self.text[self.at :].partition(">")
            if not closed or not name or not set(name) <= WORD:
                raise _InvalidError("invalid named capture")
            self.at += len(name) + 1
        elif self.take("?") and not self.flags():
            return None
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _InvalidError("expression nests too deeply")
        inner = self.alternatives()
        self.depth -= 1
        if not self.take(")"):
            raise _InvalidError("missing closing )")
        self.fold_case = fold_case
        return inner

    def flags(self) -> bool:
        """Flags behind ``(?``; whether a group follows, or the flags hold from here on."""
        negative = False
        while self.more():
            flag = self.next()
            if flag == ":":
                return True
            if flag == ")":
                return False
            if flag == "-" and not negative:
                negative = True
            elif flag == "i":
                self.fold_case = not negative
            elif flag not in "msU":
                break
        raise _InvalidError("invalid or unsupported Perl syntax")

    def escape(self) -> Node:
        if not self.more():
            raise _InvalidError("trailing backslash at end of expression")
        if self.text[self.at] in ASSERTIONS:
            return Assertion(ASSERTIONS[self.next()])
        found = self.class_escape()
        return Characters(found) if found is not None else self.literal(self.escaped())

    def class_escape(self) -> frozenset[str] | None:
        """A class behind a backslash, as in ``\\d`` and ``\\p{Lu}``; None if it is none."""
        letter = self.text[self.at]
        if letter.lower() in PERL_CLASSES:
            self.at += 1
            return _maybe_not(letter.isupper(), PERL_CLASSES[letter.lower()])
        if letter not in "pP":
            return None
        self.at += 1
        name = self.next() if self.more() else ""
        if name == "{":
            name, closed, _ = self.text[self.at :].partition("}")
            if not closed:
                raise _InvalidError("invalid character class range")
            self.at += len(name) + 1
        negative = name.startswith("^") != (letter == "P")
        return _maybe_not(negative, _unicode_class(name.removeprefix("^")))

    def escaped(self) -> str:
        """The one character behind a backslash."""
        character = self.next()
        if character in CONTROL_ESCAPES:
            return CONTROL_ESCAPES[character]
        if character == "x":
            return self.hexadecimal()
        if character in "01234567":
            if character != "0" and not (self.more() and self.text[self.at] in "01234567"):
                raise _InvalidError("invalid escape sequence")  # a reference to a group
            while self.more() and self.text[self.at] in "01234567" and len(character) < 3:
                character += self.next()
            return chr(int(character, 8))
        if character.isascii() and not character.isalnum():
            return character
        raise _InvalidError("invalid escape sequence")

    def hexadecimal(self) -> str:
        if self.take("{"):
            digits, closed, _ = self.text[self.at :].partition("}")
            self.at += len(digits) + 1
        else:
            digits, closed = self.text[self.at : self.at + 2], "}"
            self.at += 2
        valid = all(digit in "0123456789abcdefABCDEF" for digit in digits)
        if not closed or not valid or not 1 <= len(digits) <= 6 or int(digits, 16) > 0x10FFFF:
            raise _InvalidError("invalid escape sequence")
        return chr(int(digits, 16))

    def bracket(self) -> Node:
        start = self.at - 1
        negative = self.take("^")
        allowed: frozenset[str] = frozenset()
        first = True
        while first or not self.peek("]"):
            if not self.more():
                raise _InvalidError("missing closing ]")
            first = False
            named = self.posix_class()
            if named is None and self.peek("\\") and self.at + 1 < len(self.text):
                self.at += 1
                named = self.class_escape()
                if named is None:
                    self.at -= 1
            allowed |= self.range(start) if named is None else named
        self.at += 1
        return Characters(_maybe_not(negative, self.folded(allowed)))

    def posix_class(self) -> frozenset[str] | None:
        end = self.text.find(":]", self.at)
        if not self.peek("[:") or end < 0:
            return None
        name = self.text[self.at + 2 : end]
        self.at = end + 2
        found = POSIX_CLASSES.get(name.removeprefix("^"))
        if found is None:
            raise _InvalidError("invalid character class range")
        return _maybe_not(name.startswith("^"), found)

    def range(self, start: int) -> frozenset[str]:
        low = high = self.bracket_character()
        if self.peek("-") and not self.peek("-]"):
            self.at += 1
            high = self.bracket_character()
            if high < low:
                raise _InvalidError("invalid character class range")
        return frozenset(character for character in LEGAL if low <= character <= high)

    def bracket_character(self) -> str:
        if not self.more():
            raise _InvalidError("missing closing ]")
        character = self.next()
        if character != "\\":
            return character
        if not self.more():
            raise _InvalidError("trailing backslash at end of expression")
        return self.escaped()


def _maybe_not(negative: bool, characters: frozenset[str]) -> frozenset[str]:
    return LEGAL - characters if negative else characters & LEGAL


def _unicode_class(name: str) -> frozenset[str]:
    """A general category, or a script; all that a topic's name may have is Latin or Common."""
    category: Callable[[str], str] = unicodedata.category
    if name == "Any":
        return LEGAL
    if name == "Latin":
        return LOWER | UPPER
    if name == "Common":
        return LEGAL - LOWER - UPPER
    if len(name) > 2 and name.isalpha() and name[0].isupper():
        return frozenset()
    if not name or name[0] not in "CLMNPSZ" or len(name) > 2:
        raise _InvalidError("invalid character class range")
    return frozenset(character for character in LEGAL if category(character).startswith(name))


def _copies(node: Node) -> int:
    """How often the innermost part of nested counted repeats is written out."""
    if isinstance(node, Repeat):
        return max(node.most or node.least, 1) * _copies(node.part)
    if isinstance(node, Sequence | Alternatives):
        return max((_copies(part) for part in node.parts), default=1)
    return 1


def _size(node: Node) -> int:
    if isinstance(node, Repeat):
        return max(node.most or node.least, 1) * _size(node.part)
    if isinstance(node, Sequence | Alternatives):
        return 1 + sum(_size(part) for part in node.parts)
    return 1
