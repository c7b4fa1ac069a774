"""Parses JAAS text of `sasl.jaas.config`: `LoginModule required name="value" other=word;`, once or
several times.

It knows no login module: its callers interpret the options. Messages contain no values, because
passwords are among them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kstore.config.definition import ConfigError

__all__ = ["JaasEntry", "one_jaas_entry", "parse_jaas"]

FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/ | \#[^\n]*
    | "(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>(?:[^'\\]|\\.)*)'
    | (?P<sign>[=;]) | (?P<word>[^\s"'=;]+)""",
    re.VERBOSE | re.DOTALL,
)


class JaasEntry(NamedTuple):
    """One login module with its options."""

    login_module: str
    """The class name, with its package."""
    options: dict[str, str]

    def __repr__(self) -> str:
        """Without the values of options, because passwords are among them."""
        return f"JaasEntry({self.login_module!r}, options={sorted(self.options)})"


def parse_jaas(text: str, key: str = "sasl.jaas.config") -> list[JaasEntry]:
    """The entries of a JAAS text; `key` is the setting that contains it.

    Raises ConfigError, which says what is missing, without quoted values.
    """
    tokens = _tokens(text, key)
    entries = []
    at = 0
    while at < len(tokens):
        end = _find(tokens, at, key)
        entries.append(_entry(tokens[at:end], key))
        at = end + 1
    return entries


def one_jaas_entry(text: str, key: str = "sasl.jaas.config") -> JaasEntry:
    """The only entry of a JAAS text. Raises ConfigError for none or several."""
    entries = parse_jaas(text, key)
    if len(entries) != 1:
        raise ConfigError(
            f"{key} has {len(entries)} login modules; it must have one: "
            'LoginModule required name="value";',
            key=key,
        )
    return entries[0]


_Token = tuple[str, bool]
"""The tokens of the text, and whether each is a sign (= or ;) rather than a word or quoted."""


def _tokens(text: str, key: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ConfigError(f"{key} has an unclosed quotation mark", key=key)
        at = match.end()
        for kind, value in match.groupdict().items():
            if value is not None:
                is_quoted = kind in {"double", "single"}
                plain = re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL) if is_quoted else value
                tokens.append((plain, kind == "sign"))
    return tokens


def _find(tokens: list[_Token], start: int, key: str) -> int:
    for at in range(start, len(tokens)):
        if tokens[at] == (";", True):
            return at
    raise ConfigError(f"{key} lacks the semicolon that ends a login module's options", key=key)


def _entry(tokens: list[_Token], key: str) -> JaasEntry:
    if len(tokens) < 2 or tokens[0][1] or tokens[1][0].lower() not in FLAGS:
        raise ConfigError(
            f"{key} must begin with a login module's class and a flag ({', '.join(sorted(FLAGS))})",
            key=key,
        )
    options: dict[str, str] = {}
    rest = tokens[2:]
    for at in range(0, len(rest), 3):
        triple = rest[at : at + 3]
        if [sign for _, sign in triple] != [False, True, False] or triple[1][0] != "=":
            raise ConfigError(
                f'{key}: option {at // 3 + 1} is not of the form name="value"', key=key
            )
        options[triple[0][0]] = triple[2][0]
    return JaasEntry(tokens[0][0], options)
