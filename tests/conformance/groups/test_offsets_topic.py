"""The records of groups in __consumer_offsets: Kafka's tool reads kstore's, and kstore's reads
Kafka's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kstore.broker.runtime.coordinators.partitions import partition_of
from kstore.broker.state.groups.coordinator.coordinator_shard import GroupShard
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.settings import GroupSettings
from kstore.protocol.coordinator_records.framing import decode_key, decode_value
from kstore.record import decode
from tests.conformance.broker_process import BrokerProcess
from tests.conformance.groups.test_consumer_groups import Member
from tests.conformance.groups.test_groups import settle
from tests.conformance.kafka_broker import KafkaBroker, run_tool
from tests.conformance.kstore_broker import KstoreBroker
from tests.conformance.libraries.python_clients import ConfluentClient
from tests.conformance.libraries.samples import samples

pytestmark = [pytest.mark.java, pytest.mark.slow]
PARTITIONS = 4
SETTINGS = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "group.initial.rebalance.delay.ms": "0",
}
GROUP = "readers"


def consume(broker: BrokerProcess) -> Path:
    """A group reads and commits 20 records; the folder of its partition, after a clean stop."""
    client = ConfluentClient(broker.bootstrap)
    client.create_topic("t", 1)
    client.send("t", samples(20))
    assert len(client.read_as_group("t", GROUP, 20)) == 20
    broker.stop()
    return broker.log_dir / f"__consumer_offsets-{partition_of(GROUP, PARTITIONS)}"


def test_kafkas_tool_reads_our_offsets_topic(tmp_path: Path, kafka_jars: Any) -> None:
    with KstoreBroker(tmp_path, overrides=SETTINGS) as broker:
        folder = consume(broker)
    said = run_tool(
        "kafka-dump-log",
        ["--offsets-decoder", "--files", ",".join(map(str, sorted(folder.glob("*.log"))))],
    ).stdout
    assert '"type":"1","data":{"group":"readers","topic":"t","partition":0}' in said
    assert '"offset":20' in said
    assert '"protocolType":"consumer","generation":1,"protocol":"range"' in said


@pytest.mark.thorough
def test_we_read_kafkas_offsets_topic(tmp_path: Path, kafka_jars: Any) -> None:
    with KafkaBroker(tmp_path, overrides=SETTINGS) as broker:
        folder = consume(broker)
    shard = GroupShard(GroupSettings())
    for path in sorted(folder.glob("*.log")):
        for record in decode(path.read_bytes()):
            assert record.key is not None
            key = decode_key(record.key)
            value = record.value
            found = (None, 0) if value is None else decode_value(key, value)
            shard.replay(GroupRecord(key, *found), record_offset=record.offset)
    group = shard.groups[GROUP]
    assert (group.state, group.generation_id) == ("Empty", 2)
    committed = shard.offsets.get(GROUP, "t", 0)
    assert committed is not None
    assert committed.offset == 20


def test_kafkas_tool_reads_the_records_of_consumer_groups(tmp_path: Path, kafka_jars: Any) -> None:
    with KstoreBroker(tmp_path, overrides=SETTINGS) as broker:
        client = ConfluentClient(broker.bootstrap)
        client.create_topic("t", 2)
        member = Member(broker.bootstrap, "t", "^t$", **{"group.id": GROUP})
        settle([member], lambda held: held == [{0, 1}])
        folder = broker.log_dir / f"__consumer_offsets-{partition_of(GROUP, PARTITIONS)}"
        files = ",".join(map(str, sorted(folder.glob("*.log"))))
        said = run_tool("kafka-dump-log", ["--offsets-decoder", "--files", files]).stdout
        member.close()
    for kind in (3, 5, 6, 7, 8, 16):
        assert f'"type":"{kind}","data":{{"groupId":"readers"' in said, kind
    assert '"subscribedTopicRegex":"(^t$)"' in said  # librdkafka adds the group
    assert '"partitions":[0,1],"assignmentEpochs":[2,2]' in said
    assert "malformed" not in said.lower()
