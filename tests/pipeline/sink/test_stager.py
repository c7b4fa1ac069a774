"""A staged record is what a producer would have sent, without its value being copied; batches are
staged side by side, and what one fails with is told to who stages.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.clients import AdminClient
from kstore.clients.admin.topics import NewTopic
from kstore.config.client.configs import client_settings
from kstore.errors import KafkaError, UnknownTopicOrPartitionError
from kstore.pipeline.sink.stager import AT_ONCE, Stager, wrapped
from kstore.record import RecordBatchBuilder, batches, decode
from kstore.testing.brokers import Broker
from tests.beside.topic_records import records_of


def batch_of(*values: bytes) -> bytes:
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(value, None, 5)
    return bytes(builder.build(0))


@given(st.binary(max_size=200), st.lists(st.binary(max_size=9000), min_size=1, max_size=3))
def test_the_parts_are_a_batch_of_one_record(key: bytes, values: list[bytes]) -> None:
    batch = batch_of(*values)
    parts = wrapped(key, batch, 1_700_000_000_000)
    assert parts[1] is batch
    (view,) = batches(b"".join(parts), verify=True)
    assert (view.records_count, view.max_timestamp) == (1, 1_700_000_000_000)
    (record,) = decode(b"".join(parts))
    assert (record.key, record.value, record.headers) == (key, batch, ())


def test_many_batches_are_staged_each_at_its_offset(broker: Broker, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("staged-many", 2)])
    made = [batch_of(b"%d" % n * 5000) for n in range(3 * AT_ONCE)]
    settings = client_settings("producer", {"bootstrap.servers": broker.bootstrap_servers})
    with Stager(settings, "staged-many") as stager:
        sent = [stager.put(n % 2, b"key", batch) for n, batch in enumerate(made)]
        offsets = [each.result() for each in sent]
    found = {
        (r.partition, r.offset): r.value
        for r in records_of(broker.bootstrap_servers, "staged-many")
    }
    assert [found[n % 2, offset] for n, offset in enumerate(offsets)] == made


def test_what_a_batch_fails_with_is_raised(broker: Broker) -> None:
    given_ = {"bootstrap.servers": broker.bootstrap_servers, "delivery.timeout.ms": 130,
              "request.timeout.ms": 100, "linger.ms": 0}  # fmt: skip
    with Stager(client_settings("producer", given_), "nowhere") as stager:
        with pytest.raises(UnknownTopicOrPartitionError):
            stager.put(0, b"key", batch_of(b"x")).result()
        with pytest.raises(KafkaError):
            stager.put(0, b"key", batch_of(b"x"))
