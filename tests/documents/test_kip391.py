"""KIP-391 end to end: a topic is copied to a cluster of three by replicators that are killed with
-9, while the cluster's leaders are killed; offsets are equal, no record is doubled or missing. The
same code without given offsets shows what the document is for.

KSTORE_DOCUMENT_ROUNDS in the environment makes it longer.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kstore.clients import Producer, ProducerRecord
from kstore.errors import InvalidProduceOffsetError
from kstore.types import TopicPartition
from tests.beside.librdkafka import make_topics
from tests.beside.waiting import until
from tests.beside.worker import Worker
from tests.conformance.kstore_broker import ROOT, KstoreBroker
from tests.conformance.kstore_cluster import THREE_REPLICAS, KstoreCluster
from tests.documents.readers import Seen, everything

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS = 3
ROUNDS = int(os.environ.get("KSTORE_DOCUMENT_ROUNDS", "4"))


class Writer(Worker):
    """Runs transactions on the source until it is stopped; every third is aborted."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__("writer")
        self.servers, self._topic = bootstrap, topic
        self.written = 0

    def work(self) -> None:
        from confluent_kafka import Producer

        topic, to = self._topic, {"bootstrap.servers": self.servers, "linger.ms": 0}
        made = Producer(to | {"transactional.id": topic})
        made.init_transactions(60)
        while not self.stopping.is_set():
            made.begin_transaction()
            for part in range(12):
                text = f"{self.written}"
                headers = [("n", text.encode())]
                made.produce(topic, "x" * 200 + text, text, part % PARTITIONS, headers=headers)
                self.written += 1
            made.flush(60)
            if self.written % 36:
                made.commit_transaction(60)
            else:
                made.abort_transaction(60)
            self.stopping.wait(0.005)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KstoreBroker]:
    with KstoreBroker(tmp_path_factory.mktemp("source")) as broker:
        yield broker


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KstoreCluster]:
    with KstoreCluster(tmp_path_factory.mktemp("target"), overrides=THREE_REPLICAS) as cluster:
        cluster.wait_for_controller()
        yield cluster


def replicate(source: KstoreBroker, target: KstoreCluster, *more: str) -> subprocess.Popen[bytes]:
    """`kstore replicate` as a separate process."""
    command = [
        sys.executable, "-m", "kstore", "replicate", "orders", "--from", source.bootstrap, "--to",
        target.bootstrap, "--sync-interval-ms", "200", *more,
    ]  # fmt: skip
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def copied(target: KstoreCluster) -> int:
    """The sum of the log end offsets in the target."""
    tps = [TopicPartition("orders", index) for index in range(PARTITIONS)]
    with target.admin(timeout_ms=5_000) as admin:
        return sum(row.offset for row in admin.list_offsets(dict.fromkeys(tps, "latest")).values())


def until_copied(target: KstoreCluster, goal: int) -> None:
    """Wait until this much is there."""
    until(lambda: copied(target) >= goal, f"the copy goes on to {goal}")


def test_offsets_are_equal_whoever_is_killed(source: KstoreBroker, target: KstoreCluster) -> None:
    rng = random.Random(391)
    make_topics(source.bootstrap, "orders", partitions=PARTITIONS)
    with Writer(source.bootstrap, "orders"):
        running = [replicate(source, target) for _ in range(2)]
        try:
            until(lambda: target.topic("orders"), "the topic is copied")
            for turn in range(ROUNDS):
                goal = copied(target) + rng.randint(30, 300)
                until_copied(target, goal)
                victim = turn % 2
                running[victim].kill()  # SIGKILL
                running[victim].wait(60)
                if turn % 2:
                    node = target.wait_for_leader("orders", rng.randrange(PARTITIONS))
                    target.kill(node)
                    running[victim] = replicate(source, target)
                    until_copied(target, goal + 60)
                    target.start(node)
                    until(lambda: target.all_in_sync("orders"), "all are in sync")
                else:
                    running[victim] = replicate(source, target)
        finally:
            for process in running:
                process.kill()
                process.wait(60)
    last = replicate(source, target, "--until-caught-up")
    said, _ = last.communicate(timeout=120)
    assert last.returncode == 0, said.decode()
    wanted = everything(source.bootstrap, "orders", PARTITIONS)
    assert everything(target.bootstrap, "orders", PARTITIONS) == wanted
    assert [row.offset for row in wanted[0]] != list(range(len(wanted[0]))), "there are gaps"


# ---- one copier, with given offsets and without ----


def copy(rows: list[Seen], cluster: KstoreCluster, topic: str, *, given: bool) -> None:
    """Copy records as any client can: read, write, wait. With given offsets a refusal says where to
    go on; without, nothing does.
    """
    with Producer(cluster.bootstrap) as producer:
        position = 0
        while left := [row for row in rows if row.offset >= position]:
            # A batch after a gap is sent when this one is known to be there: after a refused batch,
            # a later one would leave no room for it.
            run = [row for place, row in enumerate(left) if row.offset == left[0].offset + place]
            sent = [
                producer.send(
                    ProducerRecord(
                        topic,
                        row.value,
                        row.key,
                        partition=0,
                        headers=row.headers,
                        timestamp=row.timestamp[1],
                        offset=row.offset if given else None,
                    )
                )
                for row in run
            ]
            producer.flush(raise_errors=False)
            position = run[-1].offset + 1
            for delivery in sent:
                if isinstance(delivery.error, InvalidProduceOffsetError):
                    position = delivery.error.log_end_offset
                else:
                    assert delivery.error is None


@pytest.mark.parametrize("given", [True, False], ids=["with the extension", "without it"])
def test_a_copier_that_dies_before_it_notes_its_position(
    source: KstoreBroker, target: KstoreCluster, given: bool
) -> None:
    topic = f"copied-{given}"
    make_topics(source.bootstrap, topic, partitions=PARTITIONS)
    with Writer(source.bootstrap, topic) as writer:
        until(lambda: writer.written >= 120, "there is something to copy")
    wanted = everything(source.bootstrap, topic, PARTITIONS)[0]
    target.create_topic(topic)
    # It wrote these and died before it recorded that: the next one starts again.
    copy(wanted[: len(wanted) // 2], target, topic, given=given)
    copy(wanted, target, topic, given=given)
    (found,) = everything(target.bootstrap, topic, 1)
    if given:
        assert found == wanted
        return
    values = [row.value for row in found]
    assert len(values) > len(set(values)), "records are doubled"
    committed = wanted[len(wanted) // 2].offset  # of a group that moves to the copy
    there = next(row for row in found if row.offset >= committed)
    assert there.value != wanted[len(wanted) // 2].value, "it would go on elsewhere"
