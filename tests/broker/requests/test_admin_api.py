"""The admin APIs of a single broker without an authorizer: its answers, and what it stores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kstore._fast.record.builder import build_batch
from kstore.broker.coordination.lmdb_store import LmdbStore
from kstore.broker.state.security.scram_credentials import ScramCredential
from kstore.errors import ErrorCode
from tests.broker.harness.wire import Wire
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask
from tests.record_requests import fetch_part, fetch_request, only, produce_request

Start = Callable[..., KstoreBroker]


@pytest.fixture
def two_dirs(start_broker: Start, tmp_path: Path) -> Iterator[tuple[KstoreBroker, Wire]]:
    dirs = f"{tmp_path}/a,{tmp_path}/b"
    broker = start_broker({"log.dirs": dirs, "broker.id": "1"})
    client = Wire(broker)
    yield broker, client
    client.sock.close()


def produce(client: Wire, topic: str, count: int, partition: int = 0) -> None:
    records = [(None, b"%0500d" % number) for number in range(count)]
    request = produce_request(topic, build_batch(records), first=partition)
    assert only(client.call(request, 12)).error_code == 0


def fetch(client: Wire, topic: str) -> bytes:
    row = only(client.call(fetch_request(topic, fetch_part(max_bytes=1 << 24)), 12))
    assert row.error_code == 0
    return bytes(row.records)


def homes(client: Wire, topic: str) -> dict[str, list[tuple[int, int, bool]]]:
    """Log dir's name to (partition, size, future) of a topic's partitions."""
    asked = {"topic": topic, "partitions": list(range(10))}
    results = client.call(Ask.DescribeLogDirs(topics=[asked])).results
    return {
        os.path.basename(result.log_dir): sorted(
            (row.partition_index, row.partition_size, row.is_future_key)
            for found in result.topics
            for row in found.partitions
        )
        for result in results
    }


def move(client: Wire, path: str, topic: str, partition: int = 0) -> int:
    row = {"name": topic, "partitions": [partition]}
    request = Ask.AlterReplicaLogDirs(dirs=[{"path": path, "topics": [row]}])
    return client.call(request).results[0].partitions[0].error_code


def await_home(client: Wire, topic: str, folder: str) -> None:
    """Wait until the topic's one partition is whole in the folder, and nowhere else."""
    while True:
        found = homes(client, topic)
        for rows in found.values():  # a client keeps one row of each log dir and partition
            assert len({partition for partition, _, _ in rows}) == len(rows)
        if all(len(rows) == (name == folder) for name, rows in found.items()) and not any(
            future for _, _, future in found[folder]
        ):
            return


def test_log_dirs_are_described_with_sizes_and_space(two_dirs, tmp_path):
    _, client = two_dirs
    client.make_topic("t", 2)
    produce(client, "t", 10)
    found = homes(client, "t")
    sizes = {row[0]: row[1] for rows in found.values() for row in rows}
    assert sizes[1] == 0
    assert 5000 < sizes[0] < 6000
    volume = os.statvfs(tmp_path)
    for result in client.call(Ask.DescribeLogDirs(topics=[])).results:
        assert result.topics == []
        assert result.total_bytes == volume.f_blocks * volume.f_frsize
        assert 0 < result.usable_bytes <= result.total_bytes
        assert not result.is_cordoned


def test_a_partition_moves_between_log_dirs_and_keeps_its_records(two_dirs, tmp_path):
    broker, client = two_dirs
    client.make_topic("t")
    for _ in range(20):
        produce(client, "t", 100)
    before = fetch(client, "t")
    [(home, _)] = [(name, rows) for name, rows in homes(client, "t").items() if rows]
    other = "b" if home == "a" else "a"
    assert move(client, f"{tmp_path}/{other}", "t") == 0
    produce(client, "t", 1)  # while it is on its way, or just after
    await_home(client, "t", other)
    assert not os.path.exists(f"{tmp_path}/{home}/t-0")
    assert os.listdir(f"{tmp_path}/{other}/t-0").count("kstore.future") == 0
    after = fetch(client, "t")
    assert after[: len(before)] == before
    assert len(after) > len(before)
    produce(client, "t", 1)
    broker.kill()
    broker.start()
    again = Wire(broker)
    await_home(again, "t", other)
    assert fetch(again, "t")[: len(after)] == after
    again.sock.close()


def write_and_kill(broker: KstoreBroker, client: Wire) -> tuple[bytes, str]:
    """Kill a broker that has written topic t; its bytes, and the log dir that they are in."""
    client.make_topic("t")
    produce(client, "t", 5)
    whole = fetch(client, "t")
    [home] = [name for name, rows in homes(client, "t").items() if rows]
    broker.kill()
    return whole, home


def test_a_start_drops_a_copy_that_a_crash_left_unfinished(two_dirs, tmp_path):
    broker, client = two_dirs
    whole, home = write_and_kill(broker, client)
    copy = tmp_path / ("b" if home == "a" else "a") / "t-0"
    copy.mkdir()
    (copy / "kstore.future").touch()
    (copy / f"{0:020d}.log").write_bytes(whole[:100])
    broker.start()
    again = Wire(broker)
    assert fetch(again, "t") == whole
    assert not copy.exists()
    again.sock.close()


@pytest.mark.slow
def test_a_start_takes_a_copy_whose_original_is_gone(two_dirs, tmp_path):
    broker, client = two_dirs
    whole, home = write_and_kill(broker, client)
    mark = tmp_path / home / "t-0" / "kstore.future"
    mark.touch()
    broker.start()
    again = Wire(broker)
    assert fetch(again, "t") == whole
    assert not mark.exists()
    again.sock.close()


def test_moves_are_refused_as_kafka_refuses_them(two_dirs, tmp_path):
    _, client = two_dirs
    client.make_topic("t")
    [home] = [name for name, rows in homes(client, "t").items() if rows]
    assert move(client, f"{tmp_path}/{home}", "t") == ErrorCode.NONE
    assert move(client, f"{tmp_path}/c", "t") == ErrorCode.LOG_DIR_NOT_FOUND
    assert move(client, f"{tmp_path}/{home}/", "t") == ErrorCode.LOG_DIR_NOT_FOUND
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(client, f"{tmp_path}/{home}", "t", 7) == unknown
    assert move(client, f"{tmp_path}/{home}", "absent") == unknown


def test_a_deleted_topic_stops_its_moves(two_dirs, tmp_path):
    _, client = two_dirs
    client.make_topic("t")
    for _ in range(30):
        produce(client, "t", 200)
    for name in ("a", "b"):
        move(client, f"{tmp_path}/{name}", "t")
    [deleted] = client.call(Ask.DeleteTopics(topic_names=["t"], timeout_ms=5000), 5).responses
    assert deleted.error_code == 0
    while any((tmp_path / name / "t-0").exists() for name in ("a", "b")):
        assert not any(homes(client, "t").values())
    client.make_topic("t")
    assert fetch(client, "t") == b""


def test_acl_requests_with_unknown_codes_end_the_connection(broker):
    client = Wire(broker)
    with pytest.raises(ConnectionError):
        client.call(Ask.DescribeAcls(resource_type_filter=0))
    client.sock.close()
    request = Ask.DescribeAcls(resource_type_filter=1, operation=1, permission_type=1)
    client = Wire(broker)
    assert client.call(request).error_code == ErrorCode.SECURITY_DISABLED
    client.sock.close()


@pytest.mark.slow
def test_scram_credentials_are_kept_over_a_restart_without_the_password(broker):
    client = Wire(broker)
    new = {
        "name": "ann/é",
        "mechanism": 1,
        "iterations": 5000,
        "salt": b"salt",
        "salted_password": b"p" * 32,
    }
    [result] = client.call(Ask.AlterUserScramCredentials(upsertions=[new])).results
    assert (result.user, result.error_code, result.error_message) == ("ann/é", 0, None)
    client.sock.close()
    broker.kill()
    store = LmdbStore(f"{broker.log_dir}/.coordination")
    text = store.get("/config/users/ann%2F%C3%A9")[0].decode()
    store.close()
    assert "salt=c2FsdA==" in text
    assert "cHBwcHBw" not in text  # the salted password in base64
    broker.start()
    client = Wire(broker)
    [row] = client.call(Ask.DescribeUserScramCredentials(users=None)).results
    assert row.user == "ann/é"
    assert [(i.mechanism, i.iterations) for i in row.credential_infos] == [(1, 5000)]
    client.sock.close()


def test_a_scram_credential_is_written_and_read_in_kafkas_form():
    credential = ScramCredential(b"s", b"k", b"v", 4096)
    text = "salt=cw==,stored_key=aw==,server_key=dg==,iterations=4096"
    assert credential.text() == text
    assert ScramCredential.parse(text) == credential


def test_feature_levels_change_together_and_survive_a_restart(broker):
    client = Wire(broker)
    name = "eligible.leader.replicas.version"

    def finalized(client: Wire) -> tuple[int, dict[str, int]]:
        request = Ask.ApiVersions(client_software_name="t", client_software_version="1")
        answer = client.call(request, 4)
        levels = {row.name: row.max_version_level for row in answer.finalized_features}
        return answer.finalized_features_epoch, levels

    def update(*rows: tuple[str, int, int]) -> int:
        keys = [
            {"feature": feature, "max_version_level": level, "upgrade_type": kind}
            for feature, level, kind in rows
        ]
        code: int = client.call(Ask.UpdateFeatures(feature_updates=keys)).error_code
        return code

    first_epoch, levels = finalized(client)
    assert levels[name] == 1
    assert levels["metadata.version"] == 30
    assert update((name, 0, 2), ("no.such", 1, 1)) == ErrorCode.INVALID_UPDATE_VERSION
    assert finalized(client) == (first_epoch, levels)
    assert update((name, 0, 2)) == ErrorCode.NONE
    epoch, changed = finalized(client)
    assert epoch > first_epoch
    assert changed == {key: level for key, level in levels.items() if key != name}
    client.sock.close()
    broker.kill()
    broker.start()
    client = Wire(broker)
    assert finalized(client) == (epoch, changed)
    client.sock.close()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_controller_is_a_quorum_of_one(broker, version):
    client = Wire(broker)
    partition = {"partition_index": 0}
    topic = {"topic_name": "__cluster_metadata", "partitions": [partition]}

    def describe() -> Any:
        answer = client.call(Ask.DescribeQuorum(topics=[topic]), version)
        return answer.topics[0].partitions[0]

    before = describe()
    assert before.leader_id == before.current_voters[0].replica_id
    client.make_topic(f"t{version}")
    assert describe().high_watermark > before.high_watermark
    client.sock.close()
