"""A topic shrinks from three partitions to one. A group that starts later still reads the steps of
each order in sequence.
"""

import tempfile

from kstore.clients import AdminClient, Consumer, NewTopic, Producer
from kstore.testing import Cluster

ORDERS = [b"order-%d" % number for number in range(1, 7)]
CONFIGS = {"kstore.partition.count.required": "true", "kstore.ordered.expansion": "true"}


def write(producer: Producer, step: bytes) -> None:
    """The same step of every order."""
    sent = [producer.send("orders", step, order) for order in ORDERS]
    for each in sent:
        each.result()
    print(f"{step.decode()}: partitions", *sorted({each.partition for each in sent}))


with tempfile.TemporaryDirectory() as folder, Cluster(folder) as cluster:
    bootstrap = str(cluster)
    settings = {"bootstrap.servers": bootstrap, "partitioner.class": "ordered"}
    with AdminClient(bootstrap) as admin, Producer(settings) as producer:
        admin.create_topics([NewTopic("orders", 3, 3, configs=CONFIGS)])
        write(producer, b"created")
        admin.create_partitions("orders", 1, may_shrink=True)
        write(producer, b"paid")
        write(producer, b"shipped")

    story: dict[bytes, list[str]] = {order: [] for order in ORDERS}
    reading = {
        "bootstrap.servers": bootstrap,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 100,
    }
    with Consumer(reading) as consumer:
        consumer.subscribe(["orders"])
        while any(len(steps) < 3 for steps in story.values()):
            for record in consumer.poll(100):
                story[record.key].append(record.value.decode())
    for order, steps in story.items():
        print(f"{order.decode()}:", ", ".join(steps))
