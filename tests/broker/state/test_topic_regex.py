"""Regular expressions over topics' names: RE2's syntax, whole matches, linear time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.broker.state.topic_regex import TopicRegex, regex_error

NAMES = st.text("ab1.-_B", max_size=8)
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
    assert TopicRegex(expression).matches(name) == wanted


@pytest.mark.parametrize(
    ("expression", "matching", "others"),
    [
        (r"\Qa.b\E", ["a.b"], ["axb"]),
        (r"[[:alpha:]]+", ["abC"], ["a1", ""]),
        (r"[[:^digit:]]+", ["a-b"], ["a1"]),
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
    regex = TopicRegex(expression)
    assert regex.filter([*matching, *others]) == set(matching)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("(", "missing closing )"),
        ("a)", "unexpected )"),
        ("[a", "missing closing ]"),
        ("[b-a]", "invalid character class range"),
        ("*a", "missing argument to repetition operator"),
        ("a**", "invalid nested repetition operator"),
        ("a{1001}", "invalid repeat count"),
        ("(a{100}){100}", "invalid repeat count"),
        ("a{3,2}", "invalid repeat count"),
        ("a\\", "trailing backslash at end of expression"),
        (r"(a)\1", "invalid escape sequence"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("(?P<n", "invalid named capture"),
        ("(" * 5000, "expression nests too deeply"),
        ("a{1000}" * 100, "expression too large"),
    ],
)
def test_what_re2_has_not_is_refused(expression: str, problem: str) -> None:
    assert regex_error(expression) == problem
    assert not TopicRegex(expression).matches("a")


def test_a_hostile_expression_takes_no_longer() -> None:
    # Python's own engine would go back 2^249 times.
    assert not TopicRegex("(a|aa)+(a+)+b").matches("a" * 249)
