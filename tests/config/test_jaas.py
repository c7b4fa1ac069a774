"""JAAS text: what is read, and that errors name the setting but no secret."""

from __future__ import annotations

import pytest

from kstore.config.definition import ConfigError
from kstore.config.jaas import JaasEntry, one_jaas_entry, parse_jaas

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def test_a_login_module_has_options_in_either_quotes_or_none() -> None:
    entry = one_jaas_entry(f'{SCRAM} required username="a,b" password=\'p"; x\' tokenauth=true;')
    assert entry == JaasEntry(SCRAM, {"username": "a,b", "password": 'p"; x', "tokenauth": "true"})


def test_a_backslash_takes_the_next_character_as_it_is() -> None:
    assert one_jaas_entry(r'M required password="a\"b\\c";').options == {"password": 'a"b\\c'}


def test_comments_and_line_breaks_are_blanks() -> None:
    text = 'M /* of\nus */ required // words\n  a="1"\n # more\n  b=2\n;'
    assert one_jaas_entry(text).options == {"a": "1", "b": "2"}


def test_several_modules_and_none() -> None:
    assert [entry.login_module for entry in parse_jaas("A required; B optional x=y;")] == ["A", "B"]
    assert parse_jaas("  ") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('M required password="hunter2', "unclosed"),
        ("M required password=hunter2", "semicolon"),
        ("M password=hunter2;", "flag"),
        ("required;", "begin with"),
        ("M required password hunter2;", "option 1"),
        ('M required a=1 "hunter2"=;', "option 2"),
        ("M required password==hunter2;", "option 1"),
        ("A required; B required password=hunter2;", "2 login modules"),
    ],
)
def test_what_is_no_jaas_is_refused_without_the_secret(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        one_jaas_entry(text, "listener.name.x.sasl.jaas.config")
    assert words in str(caught.value)
    assert "listener.name.x.sasl.jaas.config" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_an_entry_is_shown_without_its_values() -> None:
    assert "hunter2" not in repr(one_jaas_entry("M required password=hunter2;"))
