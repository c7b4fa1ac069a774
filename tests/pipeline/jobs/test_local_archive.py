"""archive, restore, verify and stats of an archive in this process, without Spark: the same files,
rows and findings as with Spark, and the same behaviour if runs are killed or repeated.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import kstore
from kstore.cli.app import run
from kstore.clients import AdminClient, NewTopic
from kstore.pipeline.jobs import archive as archiving
from kstore.pipeline.jobs.archive import archive, plan
from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.layout import Slice, entries, read_slices
from kstore.pipeline.jobs.local_rows import entry_batches
from kstore.pipeline.jobs.reports.local_stats import gather_here
from kstore.pipeline.jobs.reports.stats import gather
from kstore.pipeline.jobs.verification.sides import ArchiveSide, ClusterSide
from kstore.pipeline.jobs.verification.verify import VerifyOptions, verify
from kstore.testing.brokers import Broker
from tests.beside import small_disks
from tests.pipeline.conftest import KEEP
from tests.pipeline.jobs.conftest import (
    archived,
    options,
    records_of,
    restored,
    settings,
    silent,
    write_all_kinds,
)
from tests.pipeline.jobs.killed_jobs import Jobs, late
from tests.pipeline.jobs.test_archive import transactions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

KINDS = ("record", "hole", "block")
MOMENTS = {
    "data": "data/_unfinished-*", "files": "data/_unfinished-*/*/*/*/*.parquet",
    "done": "data/run=*", "slices": "slices/*",
}  # fmt: skip
"""Of a run: what there is one more of then."""


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    return make_topic(3, **KEEP)


def test_a_topic_comes_back_from_its_archive_as_it_was(
    broker: Broker, target: Broker, topic: str, tmp_path: Path
) -> None:
    write_all_kinds(broker, topic, range(300))
    transactions(broker, topic)
    first = archived(None, broker, tmp_path, topic)
    write_all_kinds(broker, topic, range(300, 360))
    second = archived(None, broker, tmp_path, topic)
    assert archived(None, broker, tmp_path, topic) == []

    assert [(s.start, s.end, s.records, s.missing) for s in first] == [(0, 106, 101, 5)] * 3
    assert [(s.start, s.end, s.records, s.missing) for s in second] == [(106, 126, 20, 0)] * 3
    assert read_slices(None, str(tmp_path)) == sorted(
        first + second, key=lambda each: (each.partition, each.start)
    )
    holes = [
        (row["offset"], row["endOffset"], row["kind"])
        for batch in entry_batches(str(tmp_path), [first[0].run], ["hole"])
        for row in batch.to_pylist()
        if row["partition"] == 0
    ]
    assert holes == [
        (100, 101, "aborted"), (101, 102, "abort"), (103, 104, "commit"), (104, 105, "aborted"),
        (105, 106, "abort"),
    ]  # fmt: skip
    days = {p.name for p in tmp_path.glob(f"data/*/entry=record/topic={topic}/*")}
    assert len(days) > 10

    columns = ["partition", "offset", "timestamp", "key", "value", "headers"]
    scanned = kstore.scan(tmp_path, topic, columns=columns).to_arrow()
    by_brokers = kstore.scan(
        topic=topic, bootstrap_servers=broker.bootstrap_servers, columns=columns,
        isolation="read_committed",
    ).to_arrow()  # fmt: skip
    order = [("partition", "ascending"), ("offset", "ascending")]
    assert scanned.sort_by(order) == by_brokers.combine_chunks()

    results = restored(None, tmp_path, target)
    assert records_of(target, topic) == records_of(broker, topic)
    assert [(r.partition, r.written, r.already_there) for r in results] == [
        (0, 121, 0), (1, 121, 0), (2, 121, 0),
    ]  # fmt: skip
    again = restored(None, tmp_path, target)
    assert [(r.written, r.start_offset, r.end_offset) for r in again] == [(0, 126, 126)] * 3


def test_an_archive_refuses_what_would_mix_or_lose_records(
    broker: Broker, admin: AdminClient, topic: str, tmp_path: Path
) -> None:
    with pytest.raises(JobError, match=f"no topic of the cluster matches '{topic}-gone'"):
        archived(None, broker, tmp_path, f"{topic}-gone")
    assert os.listdir(tmp_path) == []
    write_all_kinds(broker, topic, range(60))
    archived(None, broker, tmp_path, topic)
    write_all_kinds(broker, topic, range(60, 120))
    admin.delete_records({(topic, 0): 30})
    with pytest.raises(JobError, match="the cluster has deleted offsets 20 to 29, which are not"):
        archived(None, broker, tmp_path, topic)
    said: list[str] = []
    skipped = archive(None, options(broker, tmp_path, topic, on_loss="skip"), said.append)
    assert [(each.start, each.end) for each in skipped] == [(30, 40), (20, 40), (20, 40)]
    assert any("at 30" in text for text in said)

    admin.delete_topics([topic])
    admin.create_topics([NewTopic(topic, 1)])
    with pytest.raises(JobError, match=r"it was deleted and created again .* another folder"):
        archived(None, broker, tmp_path, topic)


def test_of_runs_at_once_only_one_counts(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_all_kinds(broker, topic, range(90))
    ready = threading.Barrier(4)
    write_slices, check = archiving.write_slices, archiving.check_alone

    def together(*arguments: Any) -> None:
        ready.wait(60)
        write_slices(*arguments)

    def slow(*arguments: Any) -> None:
        check(*arguments)
        time.sleep(0.3)  # other runs would check in this time too, if they could

    monkeypatch.setattr(archiving, "write_slices", together)
    monkeypatch.setattr(archiving, "check_alone", slow)
    done: list[Any] = []

    def work() -> None:
        try:
            done.append(archived(None, broker, tmp_path, topic))
        except JobError as error:
            done.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counted = [each for each in done if isinstance(each, list)]
    assert len(counted) == 1, done
    assert all("another run has archived" in each for each in done if isinstance(each, str))
    assert read_slices(None, str(tmp_path)) == counted[0]


def test_verify_finds_in_an_archive_what_is_damaged_or_lacking(
    broker: Broker, admin: AdminClient, topic: str, tmp_path: Path
) -> None:
    write_all_kinds(broker, topic, range(300))
    (one, *_) = archived(None, broker, tmp_path, topic)
    names = re.compile(topic)
    cluster, side = ClusterSide(settings(broker)), ArchiveSide(str(tmp_path))
    assert verify(None, VerifyOptions(names, cluster, side), silent).is_good
    write_all_kinds(broker, topic, range(300, 303))
    behind = verify(None, VerifyOptions(names, ClusterSide(settings(broker)), side), silent)
    assert [(f.kind, f.partition, f.start, f.records) for f in behind.findings] == [
        ("behind", number, 100, 1) for number in range(3)
    ]
    folder = tmp_path / f"data/run={one.run}/entry=record/topic={topic}"
    file = sorted(folder.glob("date=*/*.parquet"))[3]
    table = pq.ParquetFile(file).read()
    changed = table.set_column(
        table.schema.get_field_index("value"), "value",
        pa.array([b"another", *table["value"].to_pylist()[1:]], pa.binary()),
    )  # fmt: skip
    pq.write_table(changed, file)
    row = table.slice(0, 1).to_pylist()[0]
    compared = VerifyOptions(names, ClusterSide(settings(broker)), side, behind_allowed=True)
    found = verify(None, compared, silent).findings
    assert {(f.kind, f.partition, f.side) for f in found} == {
        ("different", row["partition"], "both"), ("damaged", row["partition"], "right"),
    }  # fmt: skip
    assert [f.start for f in found if f.kind == "different"] == [row["offset"]]
    alone = verify(None, VerifyOptions(names, ArchiveSide(str(tmp_path))), silent)
    assert [f.kind for f in alone.findings] == ["damaged"]


def test_commands_need_no_spark_for_a_small_archive(
    broker: Broker,
    target: Broker,
    topic: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)  # the tests with Spark set it
    write_all_kinds(broker, topic, range(90))
    folder, servers = str(tmp_path / "a"), broker.bootstrap_servers
    assert run(["pipeline", "archive", topic, "--archive", folder, "-b", servers]) == 0
    assert "90 records of 3 partitions archived in" in capfd.readouterr().out
    assert run(["pipeline", "archive", topic, "--archive", folder, "-b", servers]) == 0
    assert "nothing is new" in capfd.readouterr().out
    assert run(["pipeline", "verify", topic, "--archive", folder, "--from", servers]) == 0
    assert "90 records in 3 partitions: no problems" in capfd.readouterr().out
    assert run(["pipeline", "stats", topic, "--archive", folder]) == 0
    assert "90 records in 1 topics" in capfd.readouterr().out
    there = ["-b", target.bootstrap_servers]
    assert run(["pipeline", "restore", topic, "--archive", folder, *there]) == 0
    assert "90 records of 3 partitions restored" in capfd.readouterr().out
    more = ["--engine", "spark"]
    assert run(["pipeline", "archive", topic, "--archive", folder, "-b", servers, *more]) == 1
    assert "--engine local does it in this process" in capfd.readouterr().err


# ---- compared with Spark ----


def content(path: Path, run: str, kind: str) -> list[dict[str, Any]]:
    found = [r for b in entry_batches(str(path), [run], [kind]) for r in b.to_pylist()]
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def merged(blocks: list[dict[str, Any]]) -> dict[tuple[Any, ...], list[int]]:
    """Blocks are cut at the ends of fetched buffers: their sums are compared."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for row in blocks:
        at = row["topic"], row["partition"], row["offset"] // 10_000
        sums = found.setdefault(at, [row["offset"], 0, 0, 0])
        sums[1] = row["endOffset"]
        sums[2] += row["records"]
        sums[3] ^= row["digest"]
    return found


def layout(path: Path, run: str) -> set[str]:
    """The folders of a run."""
    base = path / "data" / f"run={run}"
    return {str(file.parent.relative_to(base)) for file in base.rglob("*.parquet")}


def plain(slices: list[Slice]) -> list[Slice]:
    return [replace(each, run="", archived_ms=0) for each in slices]


@pytest.mark.java
@pytest.mark.thorough
@pytest.mark.parametrize("hourly", [False, True])
def test_both_engines_write_and_read_the_same(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, hourly: bool
) -> None:
    write_all_kinds(broker, topic, range(60 if hourly else 700))  # an hour has its own folder
    transactions(broker, topic)
    here, there = tmp_path / "here", tmp_path / "there"
    kept: dict[str, list[Slice]] = {"here": [], "there": []}
    for _ in range(2):  # a run, and one that continues
        for engine, folder in ((None, here), (spark, there)):
            wanted = options(broker, folder, topic, hourly=hourly, tasks=3)
            kept[folder.name] += archive(engine, wanted, silent)
        write_all_kinds(broker, topic, range(700, 730))
    assert plain(kept["here"]) == plain(kept["there"])
    for one, other in zip(kept["here"][::3], kept["there"][::3], strict=True):
        assert layout(here, one.run) == layout(there, other.run)
        for kind in ("record", "hole"):
            assert content(here, one.run, kind) == content(there, other.run, kind)
        blocks = [content(p, r, "block") for p, r in ((here, one.run), (there, other.run))]
        assert merged(blocks[0]) == merged(blocks[1])
        files = [next((p / "data").rglob("entry=record/**/*.parquet")) for p in (here, there)]
        schemas = [pq.read_schema(file).remove_metadata() for file in files]
        assert schemas[0] == schemas[1]
    # Each reads the files of the other.
    for folder in (here, there):
        runs = {each.run for each in kept[folder.name]}
        by_spark = read_slices(spark, str(folder))
        assert by_spark == read_slices(None, str(folder))
        for kind in KINDS:
            frame = entries(spark, str(folder), runs, kind).drop("run").toArrow()
            order = [(name, "ascending") for name in ("topic", "partition", "offset")]
            mine = pa.Table.from_batches(entry_batches(str(folder), runs, [kind]))
            assert frame.sort_by(order).to_pylist() == mine.sort_by(order).to_pylist()
        names, side = re.compile(topic), ArchiveSide(str(folder))
        assert gather(spark, side, names, silent) == gather_here(side, names, silent)
        for engine in (spark, None):
            compared = VerifyOptions(names, ClusterSide(settings(broker)), side, True)
            assert verify(engine, compared, silent).is_good
    # Runs of both in one archive.
    wanted = options(broker, here, topic, hourly=hourly)
    assert [s.records for s in archive(spark, wanted, silent)] == [10] * 3
    write_all_kinds(broker, topic, range(760, 790))
    assert [s.records for s in archive(None, wanted, silent)] == [10] * 3
    assert plan(spark, wanted, silent).offsets == plan(None, wanted, silent).offsets == 0


# ---- killed runs, full disks ----


@pytest.fixture
def full(broker: Broker, topic: str) -> str:
    """The topic with more records and with transactions."""
    for number in range(4):
        write_all_kinds(broker, topic, range(number * 900, number * 900 + 900))
        transactions(broker, topic)
    return topic


def counted(folder: Path) -> dict[int, list[int]]:
    """The offsets of the records in finished runs, by partition."""
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for each in read_slices(None, str(folder)):
        data = ds.dataset(folder / f"data/run={each.run}/entry=record", partitioning="hive")
        mine = data.to_table(filter=ds.field("partition") == each.partition)
        found[each.partition] += sorted(mine["offset"].to_pylist())
    return found


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_run_that_is_killed_is_done_again(
    broker: Broker, target: Broker, full: str, tmp_path: Path
) -> None:
    jobs, folder = Jobs(tmp_path), tmp_path / "archive"
    command = (
        "archive", full, "--archive", str(folder), "-b", broker.bootstrap_servers,
        "--engine", "local",
    )  # fmt: skip
    expected = records_of(broker, full)
    offsets = {p: [row[0] for row in rows] for p, rows in expected.items()}
    for number in range(6):
        (what, pattern), late_s = random.choice(list(MOMENTS.items())), random.random() * 0.3
        there = len(list(folder.glob(pattern)))
        reached = late(lambda p=pattern, n=there: len(list(folder.glob(p))) > n, late_s)
        print(f"killed {late_s:.3f} s after {what}")
        job = jobs.start(*command)
        try:
            deadline = time.monotonic() + 120
            while job.process.poll() is None and not reached():
                assert time.monotonic() < deadline, jobs.said()
                time.sleep(0.001)
        finally:
            job.end()
        if number % 3 == 2:
            write_all_kinds(broker, full, range(3600 + number, 3603 + number))
        # The finished runs are complete at any time.
        if (folder / "slices").exists():
            found = counted(folder)
            for partition, rows in found.items():
                assert rows == offsets[partition][: len(rows)] or number
            for each in read_slices(None, str(folder)):
                assert each.records + each.missing == each.end - each.start
    jobs.finish(*command)
    expected = records_of(broker, full)
    assert counted(folder) == {p: [row[0] for row in rows] for p, rows in expected.items()}

    name = f"back-{full}"
    back = (
        "restore", full, "--archive", str(folder), "-b", target.bootstrap_servers,
        "--engine", "local", "--rename", f"{full}={name}",
    )  # fmt: skip
    for _ in range(2):
        job = jobs.start(*back)
        time.sleep(0.8 + random.random())
        job.end()
    jobs.finish(*back)
    assert records_of(target, name) == expected


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that can be filled."""
    with small_disks.small_disk(tmp_path / "disk", "300k") as folder:
        yield folder


@pytest.mark.thorough
def test_a_full_disk_ends_a_run_and_the_next_one_continues(
    broker: Broker, full: str, small_disk: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = small_disk / "archive"
    command = [
        "pipeline", "archive", full, "--archive", str(folder), "-b", broker.bootstrap_servers,
        "--engine", "local",
    ]  # fmt: skip
    assert run(command) == 1
    error = capfd.readouterr().err
    assert f"the archive {folder} can't be written: No space left on device" in error
    assert "Traceback" not in error
    assert [each for each in folder.rglob("*") if each.is_file()] == []
    subprocess.run(["mount", "-o", "remount,size=200m", str(small_disk)], check=True)
    assert run(command) == 0
    expected = records_of(broker, full)
    assert counted(folder) == {p: [row[0] for row in rows] for p, rows in expected.items()}
