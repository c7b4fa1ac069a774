"""Three real brokers, one of which comes back with damaged or truncated files: damage is repaired
from another replica, a lost end is fetched again, and no reader gets a wrong record.
"""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from kstore.errors import ErrorCode
from kstore.record import InvalidBatchError, batches, decode
from tests.beside.waiting import until
from tests.broker.harness.topic_client import TopicClient
from tests.conformance.kafka_broker import free_port
from tests.conformance.kstore_cluster import KstoreCluster
from tests.log.handling import flip_bit, remove_index

pytestmark = pytest.mark.slow
NUMBERS = count(1)
SETTINGS = {"replica.lag.time.max.ms": "5000", "offsets.topic.num.partitions": "1"}
TOPIC = {"segment.bytes": str(1 << 20), "min.insync.replicas": "1"}
BATCHES, RECORDS = 48, 8000  # 14 batches a segment
EVERY = list(range(BATCHES * RECORDS))
BASE_OFFSET, PAYLOAD = 4, 80


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KstoreCluster]:
    made = KstoreCluster(tmp_path_factory.mktemp("cluster"), 0, overrides=SETTINGS)
    for node_id in (1, 2, 3):
        listener = f"http://127.0.0.1:{free_port()}"
        made.add(node_id, {"kstore.metrics.listener": listener})
    with made:
        yield made


def filled(cluster: KstoreCluster, leader: int, **configs: str) -> str:
    """A new topic, led by that broker, with every record on every replica."""
    topic = f"t{next(NUMBERS)}"
    order = [leader, *(i for i in cluster.brokers if i != leader)]
    cluster.create_topic(topic, configs=TOPIC | configs, replicas={0: order})
    cluster.wait_for_leader(topic)
    client = TopicClient(cluster.brokers[leader])
    with client.sock:
        for _ in range(BATCHES):
            client.produce(topic, records=RECORDS)
    until(lambda: len(set(contents(cluster, topic).values())) == 1, "all have all")
    return topic


def segments(cluster: KstoreCluster, node_id: int, topic: str) -> list[Path]:
    return sorted((cluster.brokers[node_id].log_dir / f"{topic}-0").glob("*.log"))


def contents(cluster: KstoreCluster, topic: str) -> dict[int, bytes]:
    return {
        i: b"".join(file.read_bytes() for file in segments(cluster, i, topic))
        for i in cluster.brokers
    }


def flip(file: Path, batch: int, at: int) -> None:
    flip_bit(file, [view.position for view in batches(file.read_bytes())][batch] + at)


def damage(cluster: KstoreCluster, node_id: int, topic: str, at: int) -> None:
    """Flip a bit of two batches of a sealed segment, and of one in the middle of the active."""
    files = segments(cluster, node_id, topic)
    assert len(files) > 2
    flip(files[1], 2, BASE_OFFSET)
    flip(files[1], 5, at)
    flip(files[-1], 1, at)


def read_all(cluster: KstoreCluster, node_id: int, topic: str) -> list[int]:
    """The offsets that a broker returns to a consumer, skipping what it cannot read."""
    client = TopicClient(cluster.brokers[node_id])
    found: list[int] = []
    offset = 0
    with client.sock:
        while offset < len(EVERY):
            part = client.fetch_at(topic, offset, 1 << 20)
            if part.error_code == ErrorCode.CORRUPT_MESSAGE:
                offset += RECORDS
                continue
            assert part.error_code == ErrorCode.NONE
            try:
                offsets = [record.offset for record in decode(part.records)]
            except InvalidBatchError:
                continue  # at the second request, the broker checks checksums
            if not offsets:
                break
            found += offsets
            offset = offsets[-1] + 1
    return found


def metric(cluster: KstoreCluster, node_id: int, name: str) -> int:
    url = cluster.brokers[node_id].overrides["kstore.metrics.listener"]
    with urllib.request.urlopen(f"{url}/metrics", timeout=20) as answer:
        rows = answer.read().decode().splitlines()
    [value] = [row.split()[1] for row in rows if row.startswith(f"{name} ")]
    return int(value)


def alone(cluster: KstoreCluster, node_id: int, topic: str) -> None:
    """Stop the other brokers one after the other, until this one leads and is in sync alone."""
    for other in [i for i in cluster.brokers if i != node_id]:
        cluster.stop(other)
        rest = {i for i in cluster.brokers if cluster.runs(i)}
        cluster.wait_for_isr(topic, rest)
    until(lambda: cluster.leader(topic, node_id=node_id) == node_id, "it leads")


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("leads", [False, True])
def test_damage_is_written_again_from_another_replica(
    cluster: KstoreCluster, leads: bool, indexed: bool
) -> None:
    topic = filled(cluster, 2 if leads else 1)
    whole = contents(cluster, topic)[1]
    if leads:
        alone(cluster, 2, topic)
        cluster.stop(2)
    else:
        cluster.stop(2)
    damage(cluster, 2, topic, PAYLOAD)
    if not indexed:
        remove_index(cluster.brokers[2].log_dir)
    if leads:
        cluster.start(2)
        until(lambda: cluster.leader(topic, node_id=2) == 2, "it leads")
        cluster.start(1, 3)
    else:
        cluster.start(2)
    cluster.wait_for_isr(topic, (1, 2, 3))

    def healed() -> bool:
        read_all(cluster, 2, topic)  # damage may be met by a reader only
        return contents(cluster, topic)[2] == whole

    until(healed, "the files are as before", timeout_s=30, pause_s=0.3)
    # A follower learns the high watermark a little later.
    until(lambda: read_all(cluster, 2, topic) == EVERY, "a consumer of it gets all")
    written = "which were damaged, were copied again, from broker"

    def told() -> int:
        rows = (cluster.folder / "broker2" / "kstore.err").read_text().splitlines()
        return sum(f"{topic}-0: bytes" in row and written in row for row in rows)

    until(lambda: told() == 3, "three are told", timeout_s=30)
    assert metric(cluster, 2, "kstore_log_repaired_parts_total") == 3
    if not leads:
        alone(cluster, 2, topic)
        assert read_all(cluster, 2, topic) == EVERY
        cluster.start(1, 3)
    cluster.wait_for_isr(topic, (1, 2, 3))


def test_a_follower_that_needs_what_its_leader_has_damaged_gets_it_from_the_third(
    cluster: KstoreCluster,
) -> None:
    topic = filled(cluster, 2)
    whole = contents(cluster, topic)[1]
    alone(cluster, 2, topic)
    cluster.stop(2)
    damage(cluster, 2, topic, PAYLOAD)
    for file in segments(cluster, 3, topic)[1:]:
        file.unlink()
    cluster.start(2)
    until(lambda: cluster.leader(topic, node_id=2) == 2, "it leads")
    cluster.start(1, 3)  # only broker 3 reads: it fetches what it could not append
    cluster.wait_for_isr(topic, (1, 2, 3))
    until(lambda: set(contents(cluster, topic).values()) == {whole}, "all have all again")
    assert metric(cluster, 2, "kstore_log_damaged_parts_total") >= 3
    # A follower learns the high watermark a little later.
    until(lambda: read_all(cluster, 2, topic) == EVERY, "a consumer of it gets all")


@pytest.mark.parametrize("leads", [False, True])
def test_what_is_lost_from_sealed_segments_is_fetched_again(
    cluster: KstoreCluster, leads: bool
) -> None:
    topic = filled(cluster, 2 if leads else 1)
    whole = contents(cluster, topic)[1]
    if leads:
        alone(cluster, 2, topic)
    cluster.stop(2)
    files = segments(cluster, 2, topic)
    cut_active([files[0]])  # at a batch's end
    files[1].unlink()
    cluster.start(2)
    if leads:
        until(lambda: cluster.leader(topic, node_id=2) == 2, "it leads")
        cluster.start(1, 3)
    until(lambda: contents(cluster, topic)[2] == whole, "the files are as before", timeout_s=30)
    # A follower learns the high watermark a little later.
    until(lambda: read_all(cluster, 2, topic) == EVERY, "a consumer of it gets all")
    told = (cluster.folder / "broker2" / "kstore.err").read_text().splitlines()
    again = [row for row in told if f"{topic}-0: offsets" in row and "copied again, from" in row]
    assert len(again) == 2
    cluster.wait_for_isr(topic, (1, 2, 3))


Cut = Callable[[list[Path]], None]


def cut_active(files: list[Path]) -> None:
    """Cut the active segment after its second batch."""
    end = [view.position for view in batches(files[-1].read_bytes())][2]
    os.truncate(files[-1], end)


def remove_active(files: list[Path]) -> None:
    files[-1].unlink()


@pytest.mark.parametrize("cut", [cut_active, remove_active])
def test_a_follower_fetches_the_tail_that_it_lost(cluster: KstoreCluster, cut: Cut) -> None:
    topic = filled(cluster, 1)
    cluster.stop(3)
    cut(segments(cluster, 3, topic))
    cluster.start(3)
    cluster.wait_for_isr(topic, (1, 2, 3))
    until(lambda: len(set(contents(cluster, topic).values())) == 1, "all have all again")
    assert f"{topic}-0: offsets" in cluster.brokers[3].error_output()
    alone(cluster, 3, topic)
    assert read_all(cluster, 3, topic) == EVERY
    cluster.start(1, 2)
    cluster.wait_for_isr(topic, (1, 2, 3))


@pytest.mark.parametrize("cut", [cut_active, remove_active])
def test_a_leader_that_lost_its_tail_does_not_give_its_offsets_again(
    cluster: KstoreCluster, cut: Cut
) -> None:
    topic = filled(cluster, 3, **{"unclean.leader.election.enable": "true"})
    alone(cluster, 3, topic)
    cluster.stop(3)
    files = segments(cluster, 3, topic)
    cut(files)
    cluster.start(3)
    until(lambda: cluster.leader(topic, node_id=3) == 3, "it leads")
    client = TopicClient(cluster.brokers[3])
    with client.sock:
        client.produce(topic)
        assert client.list_offsets(topic).offset == len(EVERY) + 1
    *kept, behind = read_all(cluster, 3, topic)
    assert (kept, behind) == (EVERY[: len(kept)], len(EVERY))
    assert len(kept) < len(EVERY)
    [row] = [
        row
        for row in cluster.brokers[3].error_output().splitlines()
        if "ERROR" in row and f"{topic}-0: offsets" in row
    ]
    assert f"to {len(EVERY) - 1} are lost from {files[-1]}" in row
    cluster.start(1, 2)
    cluster.wait_for_isr(topic, (1, 2, 3))
