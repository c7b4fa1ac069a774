"""Values that are no names are refused with a sentence, before anything is opened."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.log.errors import LogStorageError, RecordTooLargeError


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda log_dir, log: log.cursor(b"a"), "the cursor is the bytes b'a': pass its name as a"),
        (lambda log_dir, log: log.queue(5), "the queue is the int 5: pass its name as a str"),
        (lambda log_dir, log: log.queue("q", lease_s="5"), "lease_s is the str '5': pass a number"),
        (lambda log_dir, log: log.queue("q", max_deliveries="5"), "max_deliveries is the str '5'"),
        (lambda log_dir, log: log_dir.log(b"a"), "the topic is the bytes b'a': pass its name as"),
        (lambda log_dir, log: in_transaction(log_dir, "a"), "the log is 'a': pass a Log that"),
    ],
)
def test_another_kind_of_thing(
    tmp_path: Path, call: Callable[[Any, Any], object], sentence: str
) -> None:
    with kstore.open_log_dir(tmp_path) as log_dir:
        log = log_dir.log("orders")
        with pytest.raises(TypeError, match=f"^{sentence}"):
            call(log_dir, log)
        assert log.log_end_offset == 0


@pytest.mark.parametrize("timestamp", [1_795_889_117.84, datetime(2026, 11, 28), "now"])
def test_a_timestamp_that_is_no_number_of_milliseconds(tmp_path: Path, timestamp: Any) -> None:
    """time.time() is in seconds: as milliseconds it would be a time in 1970."""
    sentence = f"timestamp is {type(timestamp).__name__}: pass an int, in milliseconds since 1970"
    with kstore.open_log(tmp_path) as log:
        for append in (
            lambda: log.append(b"x", timestamp=timestamp),
            lambda: log.append(b"x", timestamp=timestamp, headers={"h": b""}),
            lambda: log.append_many([(None, b"x", timestamp)]),
        ):
            with pytest.raises(TypeError, match=sentence):
                append()
        assert log.log_end_offset == 0


def in_transaction(log_dir: Any, log: Any) -> None:
    with log_dir.transaction() as transaction:
        transaction.append(log, b"x")


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    import numpy

    small, ratio = numpy.int64(5), numpy.float32(0.5)
    with (
        kstore.open_log(tmp_path, max_message_bytes=small, min_cleanable_dirty_ratio=ratio) as log,
        pytest.raises(RecordTooLargeError),
    ):
        log.append(b"x" * 1000)
    with kstore.open_log(tmp_path) as log:
        log.append(b"x", timestamp=small)  # type: ignore[arg-type]
        assert [record.timestamp for record in log.records()] == [5]


def test_a_flush_policy_that_is_none_names_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^flush is 'sometimes': use os, interval, always$"):
        kstore.open_log(tmp_path, flush="sometimes")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"retention_ms": "a"}, "retention_ms is the str 'a': pass an int"),
        ({"retention_ms": None}, "retention_ms is the NoneType None: pass an int"),
        ({"segment_bytes": "1000"}, "segment_bytes is the str '1000': pass an int"),
        ({"flush_messages": True}, "flush_messages is the bool True: pass an int"),
        ({"segment_ms": 2.5}, "segment_ms is the float 2.5: pass an int"),
        (
            {"min_cleanable_dirty_ratio": "1"},
            "min_cleanable_dirty_ratio is the str '1': pass a num",
        ),
        ({"preallocate": "false"}, "preallocate is the str 'false': pass True or False"),
        ({"cleanup_policy": 5}, "cleanup_policy is the int 5: pass a list of delete and compact"),
        ({"read_only": "no"}, "read_only is the str 'no': pass True or False"),
        ({"shared": 1}, "shared is the int 1: pass True or False"),
        ({"flush_interval_ms": "a"}, "flush_interval_ms is the str 'a': pass an int"),
        ({"partition": "0"}, "the partition is the str '0': pass an int"),
        ({"partition": True}, "the partition is the bool True: pass an int"),
        ({"partition": 1.5}, "the partition is the float 1.5: pass an int"),
    ],
)
def test_a_setting_of_another_type(tmp_path: Path, setting: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(sentence)}"):
        kstore.open_log(tmp_path / "log", **setting)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"segment_bytes": 13}, "segment_bytes is 13: use 14 to 2147483647"),
        ({"segment_index_bytes": 2**80}, f"segment_index_bytes is {2**80}: use 4 to 2147483647"),
        ({"max_message_bytes": 2**40}, f"max_message_bytes is {2**40}: use 0 to 2147483647"),
        ({"retention_ms": -2}, "retention_ms is -2: use -1 or more"),
        ({"segment_ms": -1}, "segment_ms is -1: use 0 or more"),
        ({"flush_messages": 0}, "flush_messages is 0: use 1 or more"),
        ({"min_cleanable_dirty_ratio": 1.5}, "min_cleanable_dirty_ratio is 1.5: use 0 to 1"),
        (
            {"min_cleanable_dirty_ratio": float("nan")},
            "min_cleanable_dirty_ratio is nan: use 0 to 1",
        ),
        ({"compression_lz4_level": 0}, "compression_lz4_level is 0: use 1 to 17"),
        (
            {"compression_type": "lzo"},
            "compression_type has 'lzo': use producer, uncompressed, gzip, snappy, lz4, zstd",
        ),
        ({"cleanup_policy": ["compact", 5]}, "cleanup_policy has 5: use delete, compact"),
        (
            {"message_timestamp_type": None},
            "message_timestamp_type has None: use CreateTime, LogAppendTime",
        ),
        ({"flush_interval_ms": 0}, "flush_interval_ms is 0: use 1 to 2147483647"),
        ({"partition": -1}, "the partition is -1: use 0 to 2147483647"),
    ],
)
def test_a_setting_out_of_range(tmp_path: Path, setting: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        kstore.open_log(tmp_path / "log", **setting)


@pytest.mark.parametrize(
    ("path", "words"),
    [("notes", "a file has this name"), ("notes/log", "a part of this path is a file")],
)
def test_a_path_that_is_a_file_is_named(tmp_path: Path, path: str, words: str) -> None:
    (tmp_path / "notes").write_bytes(b"kept")
    with pytest.raises(LogStorageError, match=words):
        kstore.open_log(tmp_path / path)
    assert (tmp_path / "notes").read_bytes() == b"kept"


def test_a_partitions_folder_is_not_opened_as_a_log_dir(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, topic="orders", partition=2) as log:
        log.append(b"x")
    folder = tmp_path / "orders-2"
    files = sorted(folder.iterdir())
    words = f"open the log dir that contains it ({tmp_path}), with topic='orders' and partition=2"
    for read_only in (False, True):
        with pytest.raises(ValueError, match=re.escape(words)):
            kstore.open_log(folder, read_only=read_only)
    assert sorted(folder.iterdir()) == files


@pytest.mark.parametrize(("path", "problem"), [("", "the path is empty"), (b"log", "is the bytes")])
def test_a_path_that_names_no_folder(path: Any, problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        kstore.open_log(path)


@pytest.mark.parametrize("name", ["start", "end"])
def test_an_offset_of_another_type(tmp_path: Path, name: str) -> None:
    text: Any = {name: "7"}
    with kstore.open_log(tmp_path) as log:
        log.append(b"x")
        with pytest.raises(TypeError, match=f"^{name} is the str '7': pass an int$"):
            list(log.records(**text))
