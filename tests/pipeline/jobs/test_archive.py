"""Archive and restore, from a real broker to Parquet and from there to another broker."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kstore.clients import AdminClient, NewTopic, Producer
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.jobs.archive import archive, check_alone
from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.layout import Slice, entries, read_slices
from kstore.testing.brokers import Broker
from tests.beside.topic_records import transaction
from tests.pipeline.conftest import KEEP
from tests.pipeline.jobs.conftest import (
    archived,
    options,
    records_of,
    restored,
    write_all_kinds,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.java]


def transactions(broker: Broker, topic: str) -> None:
    """A committed transaction between two aborted ones."""
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="t") as producer:
        producer.init_transactions()
        for number, commit in enumerate((False, True, False)):
            with transaction(producer, commits=commit):
                for partition in range(3):
                    producer.send(topic, b"t%d" % number, b"t", partition=partition)


def test_a_topic_comes_back_from_its_archive_as_it_was(
    spark: SparkSession,
    broker: Broker,
    target: Broker,
    admin: AdminClient,
    tmp_path: Path,
) -> None:
    admin.create_topics([NewTopic("arch", 3, configs=KEEP)])
    write_all_kinds(broker, "arch", range(300))
    transactions(broker, "arch")
    first = archived(spark, broker, tmp_path, "arch", tasks=3)
    write_all_kinds(broker, "arch", range(300, 360))
    second = archived(spark, broker, tmp_path, "arch", tasks=3)
    assert archived(spark, broker, tmp_path, "arch", tasks=3) == []

    assert [(s.start, s.end, s.records, s.missing) for s in first] == [(0, 106, 101, 5)] * 3
    assert [(s.start, s.end, s.records, s.missing) for s in second] == [(106, 126, 20, 0)] * 3
    runs = [first[0].run, second[0].run]
    holes = entries(spark, str(tmp_path), runs, "hole").where("partition = 0").orderBy("offset")
    assert [(h.offset, h.endOffset, h.kind) for h in holes.collect()] == [
        (100, 101, "aborted"), (101, 102, "abort"), (103, 104, "commit"), (104, 105, "aborted"),
        (105, 106, "abort"),
    ]  # fmt: skip
    days = {p.name for p in tmp_path.glob("data/*/entry=record/topic=arch/*")}
    assert "date=2020-09-13" in days
    assert len(days) > 10

    results = restored(spark, tmp_path, target)
    assert records_of(target, "arch") == records_of(broker, "arch")
    assert [(r.partition, r.written, r.already_there) for r in results] == [
        (0, 121, 0), (1, 121, 0), (2, 121, 0),
    ]  # fmt: skip
    with AdminClient(bootstrap_servers=target.bootstrap_servers) as there:
        assert there.describe_configs("arch")["retention.ms"].value == "-1"

    again = restored(spark, tmp_path, target)
    assert [(r.written, r.start_offset, r.end_offset) for r in again] == [(0, 126, 126)] * 3
    assert records_of(target, "arch") == records_of(broker, "arch")


def test_a_restore_goes_on_where_another_one_ended(
    spark: SparkSession,
    broker: Broker,
    target: Broker,
    admin: AdminClient,
    tmp_path: Path,
) -> None:
    admin.create_topics([NewTopic("half", 3, configs=KEEP)])
    write_all_kinds(broker, "half", range(90))
    archived(spark, broker, tmp_path, "half", tasks=3)
    write_all_kinds(broker, "half", range(90, 150))
    options = {"renamed": {"half": "whole"}, "compression": 4}
    restored(spark, tmp_path, target, **options)
    archived(spark, broker, tmp_path, "half", tasks=3)
    results = restored(spark, tmp_path, target, **options)
    assert [(r.topic, r.written, r.already_there) for r in results] == [("whole", 20, 30)] * 3
    assert records_of(target, "whole") == records_of(broker, "half")


def test_a_restore_refuses_a_topic_that_holds_something_else(
    spark: SparkSession, broker: Broker, target: Broker, admin: AdminClient, tmp_path: Path
) -> None:
    admin.create_topics([NewTopic("mine", 3, configs=KEEP)])
    write_all_kinds(broker, "mine", range(30))
    archived(spark, broker, tmp_path, "mine", tasks=3)
    with AdminClient(bootstrap_servers=target.bootstrap_servers) as there:
        there.create_topics([NewTopic("mine", 3), NewTopic("narrow", 2)])
    with Producer(bootstrap_servers=target.bootstrap_servers) as producer:
        producer.send("mine", b"another", partition=1)
    with pytest.raises(
        Exception, match="partition 1, offset 0: the target has another record at"
    ) as e:
        restored(spark, tmp_path, target)
    assert "PipelineError" in str(e.value) or isinstance(e.value, PipelineError)
    with pytest.raises(JobError, match="narrow has 2 partitions in the target and 3 in the arch"):
        restored(spark, tmp_path, target, renamed={"mine": "narrow"})
    with pytest.raises(JobError, match="no topic in the archive"):
        restored(spark, tmp_path, target, topics=re.compile("nothing"))


def test_an_archive_with_a_missing_file_is_not_restored(
    spark: SparkSession, broker: Broker, target: Broker, admin: AdminClient, tmp_path: Path
) -> None:
    admin.create_topics([NewTopic(name, 1, configs=KEEP) for name in ("lost", "kept")])
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for n in range(9):
            producer.send("lost", b"%d" % n, timestamp=1_600_000_000_000 + n * 86_400_000)
            producer.send("kept", b"%d" % n)
    (_, of_run) = archived(spark, broker, tmp_path, "lost|kept")
    one = next(tmp_path.glob("data/*/entry=record/topic=lost/date=2020-09-15/*.parquet"))
    one.unlink()
    with pytest.raises(
        PipelineError,
        match=rf"topic lost: the files of run {of_run.run} .* have 8 records, and 9 were",
    ):
        restored(spark, tmp_path, target)
    with AdminClient(bootstrap_servers=target.bootstrap_servers) as there:
        assert not {"lost", "kept"} & set(there.list_topics())
    assert [r.written for r in restored(spark, tmp_path, target, topics=re.compile("kept"))] == [9]


def test_an_archive_refuses_what_would_mix_or_lose_records(
    spark: SparkSession, broker: Broker, admin: AdminClient, tmp_path: Path
) -> None:
    with pytest.raises(JobError, match="not an archive"):
        read_slices(spark, str(tmp_path / "nowhere"))
    with pytest.raises(JobError, match="no topic of the cluster matches 'gone'"):
        archived(spark, broker, tmp_path, "gone", tasks=3)
    admin.create_topics([NewTopic("gone", 1)])
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for n in range(20):
            producer.send("gone", b"%d" % n)
    (first,) = archived(spark, broker, tmp_path, "gone", tasks=3)
    # Files of a killed run are ignored.
    shutil.copytree(tmp_path / f"data/run={first.run}", tmp_path / "data/run=unfinished")
    assert entries(spark, str(tmp_path), [first.run], "record").count() == 20
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for n in range(20, 40):
            producer.send("gone", b"%d" % n)
    admin.delete_records({("gone", 0): 30})
    with pytest.raises(JobError, match="the cluster has deleted offsets 20 to 29, which are not"):
        archived(spark, broker, tmp_path, "gone", tasks=3)
    said: list[str] = []
    skipping = options(broker, tmp_path, "gone", on_loss="skip")
    (skipped,) = archive(spark, skipping, said.append)
    assert (skipped.start, skipped.end) == (30, 40)
    assert any("continuing at 30" in text for text in said)

    admin.delete_topics(["gone"])
    admin.create_topics([NewTopic("gone", 1)])
    with pytest.raises(JobError, match=r"gone: it was deleted and created again .* another folder"):
        archived(spark, broker, tmp_path, "gone", tasks=3)


def test_of_two_runs_at_once_only_one_counts() -> None:
    def one(run: str, start: int, end: int) -> Slice:
        return Slice(run, "t", "", 0, 1, start, end, end - start, 0, 0, -1, "", True, "{}", 0)

    check_alone("a", [one("x", 10, 20)], [one("w", 0, 10)])
    with pytest.raises(JobError, match="another run has archived topic t, partition 0"):
        check_alone("a", [one("x", 10, 20)], [one("w", 0, 10), one("y", 10, 15)])
