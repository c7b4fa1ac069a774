"""Formats of `kstore consume`: kstore's own fields, and kcat's letters."""

from __future__ import annotations

import pytest

from kstore.cli.records.record_text import Decoded, OutputRecord, RecordFormatError
from kstore.cli.records.templates import LETTERS, template

RECORD = OutputRecord("t", 1, 22, 333, b"k\xff", b"v\n", (("h", b"1"), ("n", None)))
NULLS = OutputRecord("t", 0, 0, 0, None, None, ())


def test_a_template_writes_fields_byte_for_byte() -> None:
    form = template(r"{topic}-{partition}@{offset} {timestamp}\t{key}={value}{headers}\n{{\\")
    assert form(RECORD) == b"t-1@22 333\tk\xff=v\nh=1,n=\n{{\\"


def test_a_template_with_an_unknown_field_says_which_there_are() -> None:
    with pytest.raises(RecordFormatError, match=r"\{valu\}; the fields are topic, partition"):
        template("{valu}")


def test_null_key_and_value_are_written_as_nothing() -> None:
    assert template("[{key}|{value}]")(OutputRecord("t", 0, 0, 0, None, None, ())) == b"[|]"


@pytest.mark.parametrize(
    ("form", "written"),
    [
        (r"%t [%p] at %o: %k=%s\n", b"t [1] at 22: k\xff=v\n\n"),
        (r"%T\t%h\t%K/%S\x21%%%R", b"333\th=1,n=NULL\t2/2!%\0\0\0\2"),
        ('{"key": "%k", "no field": {other}}', b'{"key": "k\xff", "no field": {other}}'),
        ("no field at all", b"no field at all"),
    ],
)
def test_kcats_letters_are_understood(form: str, written: bytes) -> None:
    assert template(form)(RECORD) == written


def test_a_field_in_braces_makes_the_format_kstores_own() -> None:
    assert template("{offset} 100%o %s")(RECORD) == b"22 100%o %s"


def test_null_has_the_size_minus_one_and_no_text() -> None:
    assert template("[%k|%s|%K|%S|%R|%h]")(NULLS) == b"[||-1|-1|\xff\xff\xff\xff|]"


def test_a_size_is_that_of_the_record_whatever_its_format() -> None:
    record = RECORD._replace(value=Decoded(b"00ff", "00ff", 2))
    assert template("%s %S")(record) == b"00ff 2"


@pytest.mark.parametrize("form", ["%x", "100%", "%J"])
def test_an_unknown_letter_is_told_with_those_there_are(form: str) -> None:
    with pytest.raises(RecordFormatError, match="kcat's letters are %t %p") as caught:
        template(form)
    assert all(f"%{letter}" in str(caught.value) for letter in LETTERS)
