"""The .properties reader, rule by rule as java.util.Properties.load documents them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.config import ConfigError
from kstore.config.properties import parse_properties


def pairs(text: str) -> list[tuple[str, str]]:
    """The (key, value) entries of a text."""
    return [(entry.key, entry.value) for entry in parse_properties(text, "test")]


@pytest.mark.parametrize("line", ["a=b", "a:b", "a b", "a = b", "  a\t:\tb", "a  =b", "a\f b"])
def test_a_key_ends_at_equals_colon_or_blank(line: str) -> None:
    assert pairs(line) == [("a", "b")]


def test_only_the_first_separator_counts() -> None:
    assert pairs("a==b\nc = =d\ne:=f") == [("a", "=b"), ("c", "=d"), ("e", "=f")]


def test_comments_and_blank_lines_are_left_out() -> None:
    assert pairs("# a=1\n  ! b=2\n\n \t\nc=3 # not a comment") == [("c", "3 # not a comment")]


def test_a_line_goes_on_after_an_odd_number_of_backslashes() -> None:
    assert pairs("a=1,\\\n   2,\\\r\n\t3\nb=x\\\\\nc=y") == [
        ("a", "1,2,3"),
        ("b", "x\\"),
        ("c", "y"),
    ]


def test_a_comment_sign_in_a_continuation_belongs_to_the_value() -> None:
    assert pairs("a=1\\\n# 2") == [("a", "1# 2")]


def test_a_continuation_at_the_end_of_the_file_is_just_the_end() -> None:
    assert pairs("a=1\\") == [("a", "1")]


def test_escapes() -> None:
    assert pairs(r"a\=b\:c\ d=\t\n\r\f\\\q") == [("a=b:c d", "\t\n\r\f\\q")]
    assert pairs("a=\\u00e9\\uD83D\\uDE00") == [("a", "\u00e9\U0001f600")]


def test_a_key_alone_has_an_empty_value() -> None:
    assert pairs("a\nb=") == [("a", ""), ("b", "")]


def test_trailing_blanks_belong_to_the_value() -> None:
    assert pairs("a = b  ") == [("a", "b  ")]


def test_entries_know_their_first_line() -> None:
    entries = parse_properties("\n# x\na=1\\\n2\nb=3", "test")
    assert [(entry.key, entry.line) for entry in entries] == [("a", 3), ("b", 5)]


def test_a_short_unicode_escape_names_its_line() -> None:
    with pytest.raises(ConfigError, match=r"test line 2 .*\\u12x"):
        parse_properties("a=1\nb=\\u12x", "test")


def escaped(text: str) -> str:
    """Write a string so that it is read back unchanged."""
    return "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else c for c in text)


plain = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.lists(st.tuples(plain.filter(bool), plain), max_size=5))
def test_what_is_escaped_comes_back(entries: list[tuple[str, str]]) -> None:
    text = "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in entries)
    assert pairs(text) == entries


@given(st.text(alphabet="ab=: \t\\#!\nu0", max_size=60))
def test_no_text_makes_it_fail_otherwise(text: str) -> None:
    try:
        parse_properties(text, "test")
    except ConfigError as error:
        assert "Unicode escape" in str(error)  # noqa: PT017 - either outcome is right
