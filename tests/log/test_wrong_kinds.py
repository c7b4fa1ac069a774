"""Values that are no names are refused with a sentence, before anything is opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.log.errors import LogStorageError


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda log_dir, log: log.cursor(b"a"), "the cursor is the bytes b'a': pass its name as a"),
        (lambda log_dir, log: log.queue(5), "the queue is the int 5: pass its name as a str"),
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


def in_transaction(log_dir: Any, log: Any) -> None:
    """Append to it."""
    with log_dir.transaction() as transaction:
        transaction.append(log, b"x")


def test_a_flush_policy_that_is_none_names_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^flush is 'sometimes': use os, interval, always$"):
        kstore.open_log(tmp_path, flush="sometimes")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "words"),
    [("notes", "a file has this name"), ("notes/log", "a part of this path is a file")],
)
def test_a_path_that_is_a_file_is_named(tmp_path: Path, path: str, words: str) -> None:
    (tmp_path / "notes").write_bytes(b"kept")
    with pytest.raises(LogStorageError, match=words):
        kstore.open_log(tmp_path / path)
    assert (tmp_path / "notes").read_bytes() == b"kept"
