"""The files of an archive without Spark: what was written can be read, whatever the order of dates,
and however often files are closed to make room for others. A failed run leaves nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kstore.pipeline.errors import PipelineError
from kstore.pipeline.jobs import archive as archiving
from kstore.pipeline.jobs import local_files, local_rows
from kstore.pipeline.jobs import restore as restoring
from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.layout import Slice, read_slices, write_slices
from kstore.pipeline.jobs.local_files import RunFiles
from kstore.pipeline.jobs.local_rows import OrderedRows, entry_batches, stored_records
from kstore.pipeline.jobs.reports.local_stats import gather_here
from kstore.pipeline.jobs.scans.brokers import Partition, Topic
from kstore.pipeline.jobs.scans.entries import ENTRY_SCHEMA, entry_batch
from kstore.pipeline.jobs.scans.scan import Range
from kstore.pipeline.jobs.verification.sides import ArchiveSide
from tests.beside.programs import output_of

DATES = [f"2026-01-{day:02}" for day in range(1, 9)] + ["none"]


def records(topic: str, partition: int, first: int, dates: list[str]) -> Any:
    """One record for each date, with values that identify its place."""
    count = len(dates)
    offsets = np.arange(first, first + count)
    columns = {
        "partition": pa.array(np.full(count, partition, np.int32)),
        "offset": pa.array(offsets),
        "timestampMillis": pa.array(offsets),
        "value": pa.array([b"%d " % n * 9 for n in offsets], pa.binary()),
    }
    return entry_batch("record", topic, columns, pa.array(dates, pa.string()))


def rows(batches: Any) -> list[dict[str, Any]]:
    """Rows by place, without the boundaries of files and row groups."""
    found = [row for batch in batches for row in batch.to_pylist()]
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a few rows count as many."""
    monkeypatch.setattr(local_files, "GROUP_BYTES", 200)
    monkeypatch.setattr(local_files, "HELD_BYTES", 400)
    monkeypatch.setattr(local_files, "OPEN_FILES", 2)
    monkeypatch.setattr(local_rows, "ROWS", 3)
    monkeypatch.setattr(local_rows, "KEPT_BYTES", 3000)
    monkeypatch.setattr(local_rows, "WHOLE_BYTES", 600)
    monkeypatch.setattr(local_rows, "STREAMED_ROWS", 2)
    monkeypatch.setattr(local_rows, "PIECE_BYTES", 150)
    monkeypatch.setattr(local_rows, "MERGED_BYTES", 300)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


drawn = st.lists(
    st.tuples(
        st.sampled_from(["t", "u.v-w"]),
        st.integers(0, 2),
        st.lists(st.sampled_from(DATES), min_size=0, max_size=9),
    ),
    max_size=5,
)


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn=drawn)
def test_what_is_written_is_read_in_the_order_of_offsets(
    drawn: list[tuple[str, int, list[str]]],
    small: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = str(tmp_path_factory.mktemp("archive"))
    ends: dict[tuple[str, int], int] = {}
    written = []
    with RunFiles(path, "r") as files:
        for topic, partition, dates in sorted(drawn, key=lambda each: each[:2]):
            first = ends.get((topic, partition), 5)
            batch = records(topic, partition, first, dates)
            ends[topic, partition] = first + len(dates)
            written.append(batch)
            files.add(batch)
        assert list(entry_batches(path, ["r"], ["record"])) == []  # nothing exists yet
    assert rows(entry_batches(path, ["r"], ["record"])) == rows(written)
    assert stored_records(path, "r") == len(rows(written))
    ordered = OrderedRows(path)
    for (topic, partition), end in ends.items():
        found = [n for b in ordered.read("r", topic, partition) for n in b["offset"].to_pylist()]
        assert found == list(range(5, end))
    for file in Path(path).rglob("*.parquet"):
        places = pq.ParquetFile(file).read(["partition", "offset"]).to_pylist()
        assert [tuple(row.values()) for row in places] == sorted(
            tuple(row.values()) for row in places
        )


def test_only_row_groups_with_the_wanted_offsets_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunFiles(str(tmp_path), "r") as files:
        for day, date in enumerate(DATES):
            files.add(records("t", 0, day * 10, [date] * 10))
    read: list[Any] = []
    batches = local_rows._Group.batches

    def counted(group: Any) -> Any:
        read.append(group)
        return batches(group)

    monkeypatch.setattr(local_rows._Group, "batches", counted)
    found = entry_batches(str(tmp_path), ["r"], ["record"], ["t"], {("t", 0): (15, 30)})
    assert [row["offset"] for row in rows(found)] == list(range(10, 30))
    assert len(read) == 2


def test_rows_of_another_date_do_not_bring_all_others_into_memory(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few late records are in one row group that overlaps with all others."""
    monkeypatch.setattr(local_files, "GROUP_BYTES", 2000)
    monkeypatch.setattr(local_files, "HELD_BYTES", 10**6)
    count = 300
    with RunFiles(str(tmp_path), "r") as files:
        for first in range(0, count, 20):
            files.add(records("t", 0, first, [DATES[0]] * 19 + [DATES[1]]))
    files_there = sorted(tmp_path.rglob("*.parquet"))
    assert [pq.ParquetFile(each).metadata.num_row_groups for each in files_there] == [12, 1]
    monkeypatch.setattr(local_rows, "KEPT_BYTES", 0)
    open_at_once, most = 0, 0
    batches = local_rows._Group.batches

    def counted(group: Any) -> Any:
        nonlocal open_at_once, most
        open_at_once += 1
        most = max(most, open_at_once)
        try:
            yield from batches(group)
        finally:
            open_at_once -= 1

    monkeypatch.setattr(local_rows._Group, "batches", counted)
    found, sizes = [], []
    for batch in OrderedRows(str(tmp_path)).read("r", "t", 0):
        found += batch["offset"].to_pylist()
        sizes.append(batch.num_rows)
    assert found == list(range(count))
    assert most <= 2
    assert max(sizes) <= local_rows.ROWS


def test_a_sort_of_many_values_is_cut_into_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunFiles(str(tmp_path), "r") as files:
        files.add(records("t", 0, 0, DATES * 500))
    sorted_bytes: list[int] = []
    from_batches = pa.Table.from_batches

    class Counted(pa.Table):
        @staticmethod
        def from_batches(parts: Any) -> Any:
            sorted_bytes.append(sum(part.nbytes for part in parts))
            return from_batches(parts)

    monkeypatch.setattr(local_rows.pa, "Table", Counted)
    monkeypatch.setattr(local_rows, "MERGED_BYTES", 20_000)
    monkeypatch.setattr(local_rows, "_whole", lambda group: None)
    found = [
        n for b in OrderedRows(str(tmp_path)).read("r", "t", 0) for n in b["offset"].to_pylist()
    ]
    assert found == list(range(len(DATES) * 500))
    assert len(sorted_bytes) > 10
    assert max(sorted_bytes) <= 20_000


def _fail_after(files: RunFiles) -> None:
    files.add(records("t", 0, 0, DATES))
    raise ZeroDivisionError


def test_a_run_that_fails_leaves_nothing(tmp_path: Path) -> None:
    files = RunFiles(str(tmp_path), "r")
    with pytest.raises(ZeroDivisionError), files:
        _fail_after(files)
    assert list((tmp_path / "data").iterdir()) == []


def test_a_folder_that_can_t_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JobError, match=r"archive .*file can't be written: (Not a dir|File exists)"):
        RunFiles(str(tmp_path / "file"), "r").__enter__()


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that were synced."""
    found: list[Path] = []
    sync = local_files.sync_dir

    def seen(folder: str | Path) -> None:
        sync(folder)
        found.append(Path(folder))

    monkeypatch.setattr(local_files, "sync_dir", seen)
    return found


def test_the_names_of_new_folders_are_synced(tmp_path: Path, synced: list[Path]) -> None:
    path = tmp_path / "a" / "b"
    with RunFiles(str(path), "r") as files:
        assert {tmp_path, tmp_path / "a", path, path / "data"} <= set(synced)
        files.add(records("t", 0, 0, DATES))
    synced.clear()
    write_slices(None, str(path), [a_slice("r", 0, 9)], lambda *_: None)
    assert {path, path / "slices"} <= set(synced)
    synced.clear()
    with RunFiles(str(path), "r2") as files:
        files.add(records("t", 0, 9, DATES))
    assert not {tmp_path, tmp_path / "a"} & set(synced)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EINVAL, errno.EIO])
def test_folders_above_an_archive_need_not_be_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = tmp_path / "mine"
    opened = os.open

    def refusing(name: Any, *arguments: Any, **more: Any) -> int:
        if Path(name) == tmp_path:
            raise OSError(number, "no", str(name))
        return opened(name, *arguments, **more)

    monkeypatch.setattr(local_files.os, "open", refusing)
    if number == errno.EIO:
        with pytest.raises(JobError, match="can't be written: no"):
            RunFiles(str(path), "r").__enter__()
        return
    with RunFiles(str(path), "r") as files:
        files.add(records("t", 0, 0, DATES))
    write_slices(None, str(path), [a_slice("r", 0, 9)], lambda *_: None)
    assert stored_records(str(path), "r") == 9


class FewRecords:
    """A scan of nine records."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def read(self, part: Any) -> Any:
        yield records("t", 0, 0, DATES)
        block = {"partition": [0], "offset": [0], "endOffset": [9], "records": [9], "digest": [7]}
        yield entry_batch("block", "t", block)


def archived(path: Path) -> list[Slice]:
    topic = Topic("t", "id", (Partition("t", 0, 0, 9),))
    planned = archiving.Plan((topic,), (Range("t", 0, 0, 9),), "c")
    wanted = archiving.ArchiveOptions({}, str(path), re.compile("t"))
    return archiving.archive(None, wanted, lambda text: None, planned)


@pytest.mark.slow
@pytest.mark.parametrize("error", [JobError("another run"), KeyboardInterrupt()])
@pytest.mark.parametrize("where", ["set_configs", "entry_batches", "check_alone"])
def test_a_run_that_does_not_count_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, error: BaseException
) -> None:
    monkeypatch.setattr(archiving, "Scan", FewRecords)
    monkeypatch.setattr(archiving, "set_configs", lambda *_: {})
    (counted,) = archived(tmp_path)
    assert (counted.records, counted.digest) == (9, 7)
    there = sorted(tmp_path.rglob("*.parquet"))

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(archiving, where, fail)
    with pytest.raises((type(error), JobError)):
        archived(tmp_path)
    assert sorted(tmp_path.rglob("*.parquet")) == there
    assert len(list((tmp_path / "data").iterdir())) == 1


def test_a_run_that_counts_keeps_its_files_whatever_fails_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "Scan", FewRecords)
    monkeypatch.setattr(archiving, "set_configs", lambda *_: {})
    sync = local_files.sync_dir

    def fail(folder: Any) -> None:
        if Path(folder) == tmp_path / "slices" and list(Path(folder).glob("run=*")):
            raise OSError(errno.EIO, "broken")
        sync(folder)

    monkeypatch.setattr(local_files, "sync_dir", fail)
    with pytest.raises(JobError, match="can't be written: broken"):
        archived(tmp_path)
    (counted,) = read_slices(None, str(tmp_path))
    assert stored_records(str(tmp_path), counted.run) == 9


FULL = """
import resource, signal, sys
from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.local_files import RunFiles
from tests.pipeline.jobs.test_local_files import DATES, records
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))
try:
    with RunFiles(sys.argv[1], "r") as files:
        files.add(records("t", 0, 0, DATES * 9))
except JobError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_write_that_fails_is_told_and_takes_its_files_away(tmp_path: Path) -> None:
    said = output_of([sys.executable, "-c", FULL, tmp_path], cwd=Path(__file__).parents[3])
    assert "can't be written: File too large. Solve this and start the job again" in said
    assert list((tmp_path / "data").iterdir()) == []


def a_slice(run: str, start: int, end: int) -> Slice:
    """Of one partition."""
    return Slice(run, "t", "id", 0, 1, start, end, end - start, 0, -7, -1, "c", True, "{}", 9)


def test_slices_come_at_once_or_not_at_all(tmp_path: Path) -> None:
    path, seen = str(tmp_path), []

    def check(ours: Any, there: Any) -> None:
        seen.append((list(ours), there))
        assert read_slices(None, path, must_exist=False) == there
        if len(seen) == 2:
            raise JobError("no")

    first = a_slice("r1", 0, 5)
    write_slices(None, path, [first], check)
    assert read_slices(None, path) == [first]
    with pytest.raises(JobError, match="no"):
        write_slices(None, path, [a_slice("r2", 5, 7)], check)
    assert seen == [([first], []), ([a_slice("r2", 5, 7)], [first])]
    assert os.listdir(tmp_path / "slices") == ["run=r1"]
    # A run with an empty folder was killed.
    (tmp_path / "slices" / "run=r3").mkdir()
    (tmp_path / "slices" / "run=r3" / "_temporary").mkdir()
    assert read_slices(None, path) == [first]


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_run_of_spark_counts_under_the_same_lock_in_a_folder_of_this_machine(
    tmp_path: Path, synced: list[Path], scheme: str
) -> None:
    path = tmp_path / "arch"
    (path / "data" / "run=r1").mkdir(parents=True)
    checked = []

    def check(ours: Any, there: Any) -> None:
        folder = os.open(path / "slices", os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(folder)
        checked.append(there)
        assert path / "data" / "run=r1" in synced

    spark: Any = object()
    write_slices(spark, f"{scheme}{path}", [a_slice("r1", 0, 5)], check)
    assert checked == [[]]
    assert read_slices(None, str(path)) == [a_slice("r1", 0, 5)]
    with pytest.raises(AttributeError, match="read"):  # only Spark knows where these entries are
        write_slices(spark, f"{scheme}{path}", [a_slice("r2", 5, 6)], check)


def test_what_is_no_archive_is_said(tmp_path: Path) -> None:
    assert read_slices(None, str(tmp_path), must_exist=False) == []
    with pytest.raises(JobError, match="not an archive: it has no folder slices"):
        read_slices(None, str(tmp_path))
    folder = tmp_path / "slices" / "run=r"
    folder.mkdir(parents=True)
    (folder / "a.parquet").write_bytes(b"PAR1 no PAR1")
    with pytest.raises(PipelineError, match=r"archive file .*a\.parquet can't be read"):
        read_slices(None, str(tmp_path))


@pytest.mark.parametrize("lost", ["run=r0", "run=r1/entry=record/topic=t/date=2026-01-03"])
def test_an_archive_with_missing_files_is_neither_restored_nor_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    for number in range(2):
        with RunFiles(str(tmp_path), f"r{number}") as files:
            files.add(records("t", 0, number * 9, DATES))
            files.add(records("u", 0, 0, DATES))
        of_run = [a_slice(f"r{number}", number * 9, number * 9 + 9)]
        write_slices(None, str(tmp_path), of_run, lambda *_: None)
    shutil.rmtree(tmp_path / "data" / lost)

    def target(settings: Any) -> None:
        raise AssertionError("the target was asked")

    monkeypatch.setattr(restoring, "_check_given_offsets", target)
    wanted = restoring.RestoreOptions(str(tmp_path), {}, re.compile("t"))
    said = r"topic t: the files of run r\d .* have \d records, and 9 were archived\. Copy the whole"
    with pytest.raises(PipelineError, match=said):
        restoring.restore(None, wanted, print)
    with pytest.raises(PipelineError, match=said):
        gather_here(ArchiveSide(str(tmp_path)), re.compile("t"), print)


def test_later_versions_are_refused(tmp_path: Path) -> None:
    write_slices(None, str(tmp_path), [replace(a_slice("r", 0, 1), version=9)], lambda *_: None)
    with pytest.raises(PipelineError, match="written in version 9 of the layout"):
        read_slices(None, str(tmp_path))


def test_entries_keep_all_columns(tmp_path: Path) -> None:
    draw = random.Random(1)
    columns = {
        "partition": [1, 1], "offset": [3, 2**40], "endOffset": [None, 9],
        "timestamp": [0, 253402300799999000], "timestampMillis": [-1, 2**62],
        "timestampType": [0, 1], "leaderEpoch": [-1, 7], "key": [None, b""],
        "value": [draw.randbytes(9), None], "headers": [[], [{"key": "h", "value": None}]],
        "kind": ["commit", None], "records": [None, 4], "digest": [-(2**63), 2**63 - 1],
    }  # fmt: skip
    batch = entry_batch("hole", "t", columns)
    with RunFiles(str(tmp_path), "r") as files:
        files.add(batch)
    (found,) = entry_batches(str(tmp_path), ["r"], ["hole"])
    assert found.schema == ENTRY_SCHEMA
    assert found.to_pylist() == batch.to_pylist()
