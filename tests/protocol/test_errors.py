"""The error table: complete, consistent, and equal to kio's list of Kafka's errors."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

import kstore.errors
from kstore.errors import (
    ErrorCode,
    InvalidProduceOffsetError,
    KafkaError,
    NotLeaderOrFollowerError,
    StaleBrokerEpochError,
    UnknownServerError,
    error_for,
    error_name,
    raise_for,
)

CODES = {name: code for name, code in vars(ErrorCode).items() if not name.startswith("_")}
KSTORES_OWN = {"INVALID_PRODUCE_OFFSET", "INVALID_PARTITION_EPOCH", "INVALID_LEADER_EPOCH",
               "INVALID_PARTITION_COUNT"}  # fmt: skip


def test_the_codes_are_kafkas_and_kstores() -> None:
    theirs = {code.name.upper(): int(code) for code in KioErrorCode}
    assert {name: code for name, code in CODES.items() if name not in KSTORES_OWN} == theirs
    assert set(CODES) - set(theirs) == KSTORES_OWN


def test_a_kafka_error_has_a_class_with_kafkas_retriability() -> None:
    for code in set(KioErrorCode) - {KioErrorCode(0)}:
        error = error_for(int(code))
        assert error.code == code
        assert error.error_name == code.name.upper() == error_name(int(code))
        assert error.retriable == code.retriable, code
        assert error.description, code
        assert getattr(kstore.errors, type(error).__name__) is type(error), code


def test_code_77_depends_on_where_it_comes_from() -> None:
    assert type(error_for(77)) is StaleBrokerEpochError
    assert type(error_for(77, produce=True)) is InvalidProduceOffsetError
    assert type(error_for(6, produce=True)) is NotLeaderOrFollowerError


def test_an_unknown_code_is_an_unknown_server_error_that_names_it() -> None:
    error = error_for(9999)
    assert type(error) is UnknownServerError
    assert "9999" in str(error)
    assert error_name(9999) == "UNKNOWN_9999"


def test_errors_show_name_code_and_sentence() -> None:
    assert str(NotLeaderOrFollowerError("topic a, partition 1")) == (
        "NOT_LEADER_OR_FOLLOWER (6): topic a, partition 1"
    )
    assert "refresh the metadata" in str(NotLeaderOrFollowerError())


def test_raise_for_passes_zero_and_raises_the_rest() -> None:
    raise_for(0)
    with pytest.raises(NotLeaderOrFollowerError) as caught:
        raise_for(6)
    assert isinstance(caught.value, KafkaError)
    assert caught.value.refresh_metadata
    assert not caught.value.fatal
