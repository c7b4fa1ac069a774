"""Clients' regular expressions: RE2's syntax, whole matches, linear time, little memory."""

from __future__ import annotations

import re

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from kstore.broker.state.linear_regex import LinearRegex, regex_error

NAMES = st.text("ab1.-_B ü\n\U0001f600", max_size=8)
ATOMS = st.sampled_from(["a", "b", "1", r"\.", "-", "_", ".", "[ab]", "[^a]", r"\d", r"\w", r"\b"])
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        inner.map(lambda part: f"({part})"),
        inner.map(lambda part: f"(?i:{part})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)


@given(expression=EXPRESSIONS, name=NAMES)
def test_it_matches_as_python_does(expression: str, name: str) -> None:
    assert regex_error(expression) is None
    wanted = re.fullmatch(expression, name, re.ASCII) is not None
    assert LinearRegex(expression).matches(name) == wanted


@pytest.mark.parametrize(
    ("expression", "matching", "others"),
    [
        (r"\Qa.b\E", ["a.b"], ["axb"]),
        (r"[[:alpha:]]+", ["abC"], ["a1", ""]),
        (r"[[:^digit:]]+", ["a-b"], ["a1"]),
        (r"\p{Greek}+ [^a]", ["αβ ü"], ["αβ a", "ab ü"]),
        (".", ["ü", "\U0001f600"], ["", "\n", "üü"]),
        (r"\pL+\PL*", ["abc-1"], ["1"]),
        (r"\p{Lu}\p{^Lu}+", ["Aaa"], ["aaa", "AA"]),
        (r"a(?i)b|c", ["ab", "aB", "C"], ["AB", "A"]),
        (r"(?P<one>a)(?<two>b)", ["ab"], ["a"]),
        (r"\x61\x{62}\060", ["ab0"], ["ab"]),
        (r"^orders-.*$", ["orders-", "orders-1"], ["my-orders-1"]),
        (r"\Aa\z", ["a"], ["aa"]),
        ("", [""], ["a"]),
        ("x{,3}", [], ["x", "xxx"]),
        ("a{2}{", [], ["aa"]),
    ],
)
def test_what_only_re2_has(expression: str, matching: list[str], others: list[str]) -> None:
    regex = LinearRegex(expression)
    assert regex.filter([*matching, *others]) == set(matching)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("(", "missing )"),
        ("a)", "unexpected )"),
        ("[a", "missing ]"),
        ("[b-a]", "invalid character class range: b-a"),
        ("*a", "no argument for repetition operator: *"),
        ("a**", "bad repetition operator: **"),
        ("a{1001}", "invalid repetition size: {1001}"),
        ("(a{100}){100}", "invalid repetition size: {100}"),
        ("a{3,2}", "invalid repetition size: {3,2}"),
        ("a\\", "trailing \\"),
        (r"(a)\1", r"invalid escape sequence: \1"),
        ("(?=a)", "invalid perl operator: (?="),
        ("(?P<n", "invalid named capture group: (?P<n"),
        ("(" * 5000, "missing )"),
        ("a{1000}" * 100, "pattern too large"),
        ("\ud800", "invalid UTF-8"),
    ],
)
def test_what_re2_has_not_is_refused(expression: str, problem: str) -> None:
    said = regex_error(expression)
    assert said is not None
    assert said.startswith(problem)
    assert len(said) <= 100
    assert not LinearRegex(expression).matches("a")


@pytest.mark.parametrize("letter", ["a", "ü", " "])
def test_a_hostile_expression_takes_no_longer(letter: str) -> None:
    # Python's own engine would go back 2^249 times.
    hostile = f"({letter}|{letter}{letter})+({letter}+)+b"
    assert not LinearRegex(hostile).matches(letter * 249)


def test_no_match_has_more_steps_than_an_expression_may_have() -> None:
    assert LinearRegex("|".join(f"topic-{number:030}" for number in range(100))).problem is None
    assert LinearRegex("a{1000}" * 4).matches("a" * 4000)
    assert LinearRegex("a{1000}" * 4).cost("") <= 4096
    assert regex_error("a{1000}" * 5) == "pattern too large: 5004 steps, at most 4096 are allowed"


def test_expressions_are_not_kept_by_anybody_else() -> None:
    for number in range(10):
        LinearRegex(f"a{number}")
    assert re2.compile.__module__ == "re2"
    assert re2._Regexp._make.cache_info().currsize == 0
