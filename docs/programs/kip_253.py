"""KIP-253: a topic grows from one partition to two, and a key moves to the new partition: without
the extension, and with it.
"""

import tempfile
from collections.abc import Collection

from kstore.clients import (
    AdminClient,
    Consumer,
    NewTopic,
    Producer,
    RebalanceListener,
    TopicPartition,
)
from kstore.testing import Cluster

KEY = b"order-3"


class Busy(RebalanceListener):
    """The application is still busy with partition 0."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Pause partition 0."""
        self._consumer.pause(*(tp for tp in partitions if tp.partition == 0))


def show(bootstrap: str, topic: str, *, enabled: bool) -> None:
    """Write the steps of an order before and after an expansion, and read them."""
    settings = {"bootstrap.servers": bootstrap, "kstore.kip253.enable": enabled}
    with AdminClient(bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1, 3)])
        with Producer(settings | {"partitioner.class": "ordered"}) as producer:
            for step in (b"created", b"paid"):
                producer.send(topic, step, KEY).result()
        admin.create_partitions(topic, 2)
    with Producer(settings | {"partitioner.class": "ordered"}) as producer:
        sent = producer.send(topic, b"shipped", KEY)
        sent.result()
        print(f"  shipped is in partition {sent.partition}")

    seen: list[str] = []
    with Consumer(
        settings | {"group.id": f"readers-of-{topic}", "auto.offset.reset": "earliest"}
    ) as consumer:
        consumer.subscribe([topic], Busy(consumer))
        turns = 0
        while turns < 10:  # a second, while partition 0 is paused
            seen += [record.value.decode() for record in consumer.poll(100)]
            turns += len(consumer.assignment()) == 2
        print(
            "  while partition 0 is paused, the application receives:", ", ".join(seen) or "nothing"
        )
        consumer.resume(TopicPartition(topic, 0))
        while len(seen) < 3:
            seen += [record.value.decode() for record in consumer.poll(100)]
        print("  in the end it has received:", ", ".join(seen))


with tempfile.TemporaryDirectory() as folder, Cluster(folder) as cluster:
    print("without KIP-253:")
    show(str(cluster), "orders-without", enabled=False)
    print("with KIP-253:")
    show(str(cluster), "orders-with", enabled=True)
