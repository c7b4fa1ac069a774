"""What the command does between commits, round after round. Without Spark and without a table."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException

from kstore.cli.pipeline import table as command
from kstore.errors import NetworkError, TopicAuthorizationFailedError
from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.scans.brokers import Brokers, Topic
from kstore.pipeline.jobs.session import passing_trouble
from kstore.pipeline.jobs.tables import iceberg, keep
from kstore.pipeline.jobs.tables.iceberg import PACKAGE, Head
from kstore.pipeline.jobs.tables.keep import Kept, TableOptions
from kstore.pipeline.jobs.tables.progress import Round, TablePosition, first_progress
from tests.conformance.kafka_jars import ICEBERG_VERSION
from tests.pipeline.jobs.tables.test_progress import topic

OPTIONS = TableOptions({}, "t", "lake", "shop", "t", resync=True)


def fake_spark(*, ended: bool = False) -> Any:
    """A session that has ended or not."""
    scala = SimpleNamespace(isStopped=lambda: ended)
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: scala)))


class Rounds:
    """A command with these rounds, and the calls that it made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *rounds: Kept | Exception) -> None:
        self.left = list(rounds)
        self.catalogs: list[str] = []
        self.resyncs: list[bool] = []
        self.slept: list[float] = []
        self.told: list[int] = []
        self.said: list[str] = []
        monkeypatch.setattr(iceberg, "Catalog", self.open)
        monkeypatch.setattr(keep, "keep_table", self.keep)
        # Not time.sleep itself, because other threads of this process call it too.
        monkeypatch.setattr(
            command, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=self.slept.append)
        )

    def open(self, spark: object, name: str) -> str:
        self.catalogs.append(name)
        return name

    def keep(self, spark: object, options: TableOptions, say: object, catalog: str) -> Kept:
        assert catalog == "lake"
        self.resyncs.append(options.resync)
        if not self.left:
            raise KeyboardInterrupt
        found = self.left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def done(self, data: dict[str, Any], sentence: str) -> None:
        self.told.append(data["records"])

    def run(self, every_s: float | None) -> None:
        running: Any = SimpleNamespace(spark=fake_spark(), print=self.said.append, done=self.done)
        command._rounds(running, OPTIONS, every_s)


def test_a_run_ends_when_nothing_is_left_and_resyncs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    some = Kept("t", "lake.shop.t", records=3, offsets=5, behind=5)
    rounds = Rounds(monkeypatch, some, replace(some, behind=0))
    rounds.run(None)
    assert (rounds.told, rounds.resyncs, rounds.slept) == ([3, 3], [True, False], [])


def test_following_waits_between_commits_with_one_catalog_and_ends_with_ctrl_c(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    some, none = Kept("t", "lake.shop.t", records=3, offsets=5), Kept("t", "lake.shop.t")
    rounds = Rounds(monkeypatch, replace(some, behind=2), some, none, replace(none, lost=4))
    with pytest.raises(KeyboardInterrupt):
        rounds.run(60.0)
    assert rounds.told == [3, 3, 0]  # no report without new records
    assert rounds.slept == [60.0] * 3  # no pause while records are left
    assert rounds.catalogs == ["lake"]  # each round has its own connections


def test_following_goes_on_after_trouble_that_passes_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    some = Kept("t", "lake.shop.t", records=3, offsets=5)
    troubles = [
        NetworkError("host:9092 does not answer."),
        JobError("the catalog can't be read: ConnectException", passes=True),
        PythonException("a task failed"),
    ]
    rounds = Rounds(monkeypatch, some, *troubles, some, NetworkError("again"))
    with pytest.raises(KeyboardInterrupt):
        rounds.run(0.5)
    assert rounds.told == [3, 3]
    assert [text.partition("; trying again in ")[0] for text in rounds.said] == [
        "NETWORK_EXCEPTION (13): host:9092 does not answer",
        "the catalog can't be read: ConnectException",
        "Spark: a task failed", "NETWORK_EXCEPTION (13): again",
    ]  # fmt: skip
    growing = rounds.slept[1:4]
    assert all(0.8 * 2**n <= pause <= 1.2 * 2**n for n, pause in enumerate(growing))
    assert rounds.slept[5] <= 1.2, "after a good round the pauses are short again"


@pytest.mark.parametrize(
    "error",
    [
        JobError("table lake.shop.t has topic other"),
        TopicAuthorizationFailedError("no"),
        AnalysisException("no such column"),
        ValueError("a bug"),
    ],
)
def test_following_ends_with_what_will_not_pass(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    rounds = Rounds(monkeypatch, Kept("t", "lake.shop.t", offsets=5), error)
    with pytest.raises(type(error)):
        rounds.run(60.0)
    assert rounds.said == []


@pytest.mark.parametrize(("good", "every_s"), [(0, 60.0), (1, None)])
def test_the_first_round_and_a_single_run_are_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, good: int, every_s: float | None
) -> None:
    some = Kept("t", "lake.shop.t", offsets=5, behind=5)
    rounds = Rounds(monkeypatch, *[some] * good, NetworkError("down"))
    with pytest.raises(NetworkError):
        rounds.run(every_s)


def test_trouble_does_not_pass_once_spark_has_ended() -> None:
    error = PythonException("a task failed")
    assert passing_trouble(error, fake_spark()) == "Spark: a task failed"
    assert passing_trouble(error, fake_spark(ended=True)) is None
    broken: Any = SimpleNamespace()
    assert passing_trouble(error, broken) is None


def test_a_topic_that_grew_since_its_plan_is_behind_by_all_of_the_new_partition() -> None:
    known = first_progress(topic((0, 4)), "cluster", "all", 1000)
    job = keep._Keeping(None, OPTIONS, print)  # type: ignore[arg-type]
    table: Any = SimpleNamespace(head=lambda: Head(1, None))
    kept = job._kept(table, topic((0, 4), (0, 3)), Round((), known), None)
    assert kept.behind == 7


class Served(Brokers):
    """A cluster that has one topic or none."""

    cluster_id = "cluster"

    def __init__(self, now: Topic | None) -> None:
        self.now = now

    def close(self) -> None:
        pass

    def topics(self, wanted: object) -> list[Topic]:
        return [] if self.now is None else [self.now]

    def epoch_ends(self, epochs: Any) -> dict[Any, int]:
        return dict.fromkeys(epochs, 9)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (topic((0, 9), topic_id="two", epoch=8), "deleted and created again"),
        (topic((0, 3)), "read to offset 9, and the log ends at 3"),
        (None, "no topic t"),
    ],
)
def test_what_was_read_is_not_committed_if_the_topic_has_changed_meanwhile(
    monkeypatch: pytest.MonkeyPatch, now: Topic | None, said: str
) -> None:
    before = topic((0, 9))
    known = replace(
        first_progress(before, "cluster", "all", 1000), positions={0: TablePosition(9, 3)}
    )
    job = keep._Keeping(None, OPTIONS, print)  # type: ignore[arg-type]
    monkeypatch.setattr(keep, "Brokers", lambda settings: Served(before))
    job._check_still(known)
    monkeypatch.setattr(keep, "Brokers", lambda settings: Served(now))
    with pytest.raises(JobError, match=said):
        job._check_still(known)


def test_iceberg_comes_from_maven_unless_a_jar_of_it_is_named() -> None:
    assert PACKAGE.split(":")[-1] == ICEBERG_VERSION  # the version that the tests run with
    named = ["spark.jars=/jars/iceberg-runtime.jar"]
    assert command._with_iceberg(named, PACKAGE) == named
    others = ["spark.jars.packages=a:b:1", "spark.jars=/jars/sqlite.jar"]
    assert command._with_iceberg(others, PACKAGE) == [
        "spark.jars=/jars/sqlite.jar", f"spark.jars.packages={PACKAGE},a:b:1",
    ]  # fmt: skip
