"""Appends to several logs in one transaction: their order, their conditions, and the outcome of one
that was decided and not done.
"""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from kstore.log import (
    InvalidTimestampError,
    LogClosedError,
    LogStorageError,
    ReadOnlyLogError,
    RecordTooLargeError,
    UnexpectedOffsetError,
    open_log,
    open_log_dir,
)
from kstore.log.transactions import transaction
from kstore.log.transactions.journal import JOURNAL_NAME, Journal, pending_parts
from kstore.types import Header
from tests.log.handling import values


@pytest.mark.parametrize("settings", [{}, {"shared": True}, {"flush": "always"}])
def test_all_of_it_is_there_when_the_block_ends(tmp_path: Path, settings: dict[str, str]) -> None:
    with open_log_dir(tmp_path, **settings) as logs:
        a, b = logs.log("a"), logs.log("b")
        a.append(b"0")
        with logs.transaction() as t:
            t.append(a, b"1", key=b"k", headers=[("h", b"v")])
            t.append_many(b, [b"2", b"3"], compression="zstd")
            t.append(a, b"4")
            t.append_many(b, [(b"k", b"5")])
            assert (values(a), values(b)) == ([b"0"], [])
        assert (values(a), values(b)) == ([b"0", b"1", b"4"], [b"2", b"3", b"5"])
        assert (t.result(a).base_offset, t.result(a).last_offset) == (1, 2)
        assert (t.result(b).base_offset, t.result(b).last_offset) == (0, 2)
        assert [*a.records()][1].headers == (Header("h", b"v"),)
        assert pending_parts(logs.env.fs, logs.path) == []
        a.append(b"6")
    with open_log_dir(tmp_path) as logs:
        assert values(logs.log("a")) == [b"0", b"1", b"4", b"6"]


def test_none_of_it_where_the_block_raises_or_it_is_empty(tmp_path: Path) -> None:
    with open_log_dir(tmp_path) as logs:
        a = logs.log("a")
        with pytest.raises(KeyError), logs.transaction() as t:  # noqa: PT012 (its end raises)
            t.append(a, b"x")
            raise KeyError
        with logs.transaction() as t:
            pass
        assert values(a) == []
        with pytest.raises(ValueError, match="has ended"):
            t.append(a, b"x")
        assert not (tmp_path / JOURNAL_NAME).exists()


def test_what_one_log_refuses_none_gets(tmp_path: Path) -> None:
    with open_log_dir(tmp_path, max_message_bytes=1000) as logs:
        a, b = logs.log("a"), logs.log("b")
        b.append(b"0")
        for wrong, kind in (
            ({"value": b"x" * 2000}, RecordTooLargeError),
            ({"value": b"x", "expected_offset": 0}, UnexpectedOffsetError),
            ({"value": b"x", "timestamp": 2**55}, InvalidTimestampError),
        ):
            with pytest.raises(kind), logs.transaction() as t:  # noqa: PT012 (its end raises)
                t.append(a, b"good", expected_offset=0)
                t.append(b, **wrong)
            assert (values(a), values(b)) == ([], [b"0"])
        with logs.transaction() as t:
            t.append(a, b"good", expected_offset=0)
            t.append(b, b"good", expected_offset=1)
        assert (values(a), values(b)) == ([b"good"], [b"0", b"good"])


def test_logs_of_other_dirs_and_readers_are_refused(tmp_path: Path) -> None:
    with open_log_dir(tmp_path / "one") as logs, open_log(tmp_path / "two") as other:
        with pytest.raises(ValueError, match="log dir"), logs.transaction() as t:
            t.append(other, b"x")
        with pytest.raises(TypeError), logs.transaction() as t:
            t.append_many(logs.log("a"), b"abc")  # type: ignore[arg-type]
    reader = open_log_dir(tmp_path / "one", read_only=True)
    with reader, pytest.raises(ReadOnlyLogError):
        reader.transaction()


def test_transactions_of_many_threads_keep_their_logs_in_step(tmp_path: Path) -> None:
    with open_log_dir(tmp_path, segment_bytes=2_000) as logs:
        a, b = logs.log("a"), logs.log("b")

        def work(name: int) -> None:
            for number in range(50):
                with logs.transaction() as t:
                    for log in (a, b) if name % 2 else (b, a):
                        t.append(log, b"%d %d" % (name, number))

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert values(a) == values(b)
        assert len(set(values(a))) == 200


def broken_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, shared: bool) -> None:
    """One that fails at its second log, as if the disk were full."""
    with open_log_dir(tmp_path, shared=shared) as logs:
        a, b = logs.log("a"), logs.log("b")
        b.append(b"0")
        apply = transaction.Transaction._apply

        def fail(self: transaction.Transaction, made: list[tuple[object, bytearray]]) -> None:
            (log, data) = made[1]
            made[1] = (log, bytearray(len(data)))  # type: ignore[index]
            apply(self, made)  # type: ignore[arg-type]

        monkeypatch.setattr(transaction.Transaction, "_apply", fail)
        decided = pytest.raises(LogStorageError, match=r"decided.*b-0.*open it again")
        with decided, logs.transaction() as t:
            t.append(a, b"x")
            t.append_many(b, [b"y", b"z"])
        monkeypatch.setattr(transaction.Transaction, "_apply", apply)
        assert values(a) == [b"x"]
        if not shared:
            with pytest.raises(LogClosedError):
                b.append(b"no")
        assert len(pending_parts(logs.env.fs, logs.path)) == 2


def test_who_appends_next_in_a_shared_dir_completes_what_was_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_log_dir(tmp_path, shared=True) as other:
        broken_transaction(tmp_path, monkeypatch, shared=True)
        assert other.log("b").append(b"1") == 3
        assert values(other.log("b")) == [b"0", b"y", b"z", b"1"]
        with other.transaction() as t:
            t.append(other.log("a"), b"2")
        assert values(other.log("a")) == [b"x", b"2"]


@pytest.mark.parametrize("shared", [False, True])
def test_what_was_decided_is_completed_at_the_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    broken_transaction(tmp_path, monkeypatch, shared=shared)
    with open_log_dir(tmp_path) as logs:
        assert values(logs.log("a")) == [b"x"]
        assert values(logs.log("b")) == [b"0", b"y", b"z"]
        assert pending_parts(logs.env.fs, logs.path) == []
        assert logs.log("b").append(b"1") == 3
    with open_log_dir(tmp_path) as logs:
        assert values(logs.log("b")) == [b"0", b"y", b"z", b"1"]


def test_an_entry_that_is_not_whole_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_transaction(tmp_path, monkeypatch, shared=False)
    journal = tmp_path / JOURNAL_NAME
    journal.write_bytes(journal.read_bytes()[:-1])
    with open_log_dir(tmp_path) as logs:
        assert values(logs.log("b")) == [b"0"]


def test_a_log_that_was_deleted_and_made_anew_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_transaction(tmp_path, monkeypatch, shared=False)
    for file in (tmp_path / "b-0").iterdir():
        file.unlink()
    (tmp_path / "b-0").rmdir()
    with open_log_dir(tmp_path) as logs:
        assert values(logs.log("b")) == []


class _Failing:
    """The journal's file, of which calls of one method fail, once or from then on."""

    def __init__(self, file: Any, method: str, *, once: bool) -> None:
        self.file, self.method, self.once = file, method, once

    def __getattr__(self, name: str) -> Any:
        if name != self.method:
            return getattr(self.file, name)
        return self._fail

    def _fail(self, *_: object) -> None:
        if self.once:
            self.method = ""
        raise OSError(errno.EIO, "the disk failed")


def test_an_interrupted_journal_leaves_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_log_dir(tmp_path) as logs:
        a, b = logs.log("a"), logs.log("b")
        write = Journal.write

        def interrupted(journal: Journal, *arguments: Any, **settings: Any) -> None:
            write(journal, *arguments, **settings)
            raise KeyboardInterrupt

        monkeypatch.setattr(Journal, "write", interrupted)
        with pytest.raises(KeyboardInterrupt), logs.transaction() as t:  # noqa: PT012
            t.append(a, b"interrupted")
            t.append(b, b"interrupted")
        monkeypatch.setattr(Journal, "write", write)
        a.append(b"other")
    with open_log_dir(tmp_path) as logs:
        assert (values(logs.log("a")), values(logs.log("b"))) == ([b"other"], [])


@pytest.mark.parametrize("method", ["overwrite", "append", "sync"])
@pytest.mark.parametrize("once", [True, False])
def test_a_journal_that_fails_leaves_all_or_nothing(
    tmp_path: Path, method: str, once: bool
) -> None:
    bad = b"failed" * 100  # longer than what the journal has, so that all methods are called
    with open_log_dir(tmp_path, flush="always") as logs:
        a, b = logs.log("a"), logs.log("b")
        with logs.transaction() as t:
            t.append(a, b"0")
            t.append(b, b"0")
        logs.journal._file = _Failing(logs.journal._open(), method, once=once)  # type: ignore[assignment]
        with pytest.raises(LogStorageError), logs.transaction() as t:  # noqa: PT012 (its end raises)
            t.append(a, bad)
            t.append(b, bad)
        if once or method != "sync":
            a.append(b"1")
            logs.journal._file = logs.journal._file.file  # type: ignore[union-attr]
            with logs.transaction() as t:
                t.append(a, b"2")
                t.append(b, b"2")
            assert (values(a), values(b)) == ([b"0", b"1", b"2"], [b"0", b"2"])
        else:  # what the disk has is not known
            with pytest.raises(LogClosedError):
                a.append(b"1")
    with open_log_dir(tmp_path) as logs:
        assert (bad in values(logs.log("a"))) == (bad in values(logs.log("b")))
