"""Reads from Apache Kafka, whose brokers report no partition epochs: topic ids are used instead.
Called as Spark calls them, without Spark.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kstore.clients import AdminClient, NewTopic
from kstore.pipeline.errors import PipelineError
from kstore.types import TopicPartition
from tests.conformance.kafka_broker import KafkaBroker
from tests.conformance.kafka_jars import KafkaUnavailableError, fetch_jars, java_program
from tests.conformance.live_kafka import LIVE_KAFKA
from tests.pipeline.reading import Query, batch_rows, values, write

pytestmark = [*LIVE_KAFKA, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Kafka for this module. Without Java or Maven its tests are skipped, except in CI."""
    try:
        java_program()
        fetch_jars()
    except KafkaUnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka.bootstrap


def test_a_stream_goes_on_from_its_checkpoint_and_refuses_a_topic_made_anew(servers: str) -> None:
    with AdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("t", 2)])
        write(servers, "t", range(10))
        write(servers, "t", range(10, 15), partition=1)
        assert values(batch_rows(servers, "t")) == list(range(15))
        query = Query(servers, "t", maxOffsetsPerTrigger="9")
        assert len(values(query.step())) == 9
        restarted = Query(servers, "t", log=query.log)
        assert len(values(restarted.step())) == 6
        admin.create_partitions({"t": 3})
        write(servers, "t", [15], partition=2)
        assert values(restarted.step()) == [15], "no order is kept where brokers can't tell"
        admin.delete_records({TopicPartition("t", 0): 4})
        quick = {"kafkaConsumer.pollTimeoutMs": "2000"}
        assert len(batch_rows(servers, "t", **quick)) == 12
        admin.delete_topics(["t"])
        admin.create_topics([NewTopic("t", 3)])
        write(servers, "t", range(20))
        with pytest.raises(PipelineError, match=r"topic t, .*created again .*there: topic id"):
            restarted.step()
        options = {"kstore.recreatedTopics": "restart"}
        again = Query(servers, "t", log=restarted.log, **options)
        assert values(again.step()) == list(range(20))
        for each in (query, restarted, again):
            each.close()
