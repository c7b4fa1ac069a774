"""KIP-232: a consumer reads a topic that is deleted and created again, without and with partition
epochs.
"""

import tempfile

from kstore.clients import (
    AdminClient,
    Consumer,
    InvalidPartitionEpochError,
    NewTopic,
    Producer,
    TopicPartition,
)
from kstore.testing import Cluster


def create(bootstrap: str, topic: str, values: list[bytes]) -> None:
    """Create a topic with one partition on all three brokers, and write records to it."""
    with AdminClient(bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1, 3)])
    with Producer(bootstrap) as producer:
        for value in values:
            producer.send(topic, value, partition=0)


def read(consumer: Consumer, count: int) -> list[bytes]:
    """Read the values of the next records."""
    found: list[bytes] = []
    while len(found) < count:
        found += [record.value for record in consumer.poll(100)]
    return found


def show(bootstrap: str, topic: str, *, enabled: bool) -> None:
    """Read three records, replace the topic, and read on."""
    tp = TopicPartition(topic, 0)
    create(bootstrap, topic, [b"old-0", b"old-1", b"old-2"])
    with Consumer(
        bootstrap_servers=bootstrap, group_id=f"readers-of-{topic}", enable_auto_commit=False,
        auto_offset_reset="earliest", kstore_kip232_enable=enabled,
    ) as consumer:  # fmt: skip
        consumer.assign([tp])
        print("  reads", read(consumer, 3))
        consumer.pause(tp)
        with AdminClient(bootstrap) as admin:
            admin.delete_topics([topic])
        create(bootstrap, topic, [b"new-%d" % number for number in range(5)])
        consumer.resume(tp)
        try:
            print("  reads", read(consumer, 2))
            consumer.commit()
            print("  commits offset 5: no member of the group will read new-0 to new-2")
        except InvalidPartitionEpochError:
            print("  gets an error: the topic was replaced")
            consumer.seek_to_beginning(tp)
            print("  reads", read(consumer, 5))


with tempfile.TemporaryDirectory() as folder, Cluster(folder) as cluster:
    print("without KIP-232: a consumer")
    show(str(cluster), "orders", enabled=False)
    print("with KIP-232: a consumer")
    show(str(cluster), "payments", enabled=True)
