"""KIP-359: a leader was replaced twice and does not know it, without and with the leader epoch in
Produce.
"""

import tempfile
import time

from kstore.clients import AdminClient, Consumer, NewTopic, Producer, TopicPartition
from kstore.testing import Cluster, Faults


def lead(admin: AdminClient, tp: TopicPartition, replicas: list[int]) -> None:
    """Make the first of these replicas the leader."""
    admin.alter_partition_reassignments({tp: replicas})
    while admin.list_partition_reassignments():
        time.sleep(0.01)
    admin.elect_leaders([tp])
    while admin.describe_topics([tp.topic])[0].partitions[0].leader != replicas[0]:
        time.sleep(0.01)


def show(cluster: Cluster, topic: str, *, enabled: bool) -> None:
    """Write to a leader that is two elections behind, then make another broker the leader."""
    tp = TopicPartition(topic, 0)
    with AdminClient(str(cluster)) as admin:
        controller = admin.describe_cluster().controller_id
    old = next(number for number in cluster.brokers if number != controller)
    first, second = (number for number in cluster.brokers if number != old)
    bootstrap = cluster[first].bootstrap_servers
    faults = Faults(lambda: cluster.http_urls)
    with AdminClient(bootstrap) as admin:
        admin.create_topics([NewTopic(topic, replicas={0: [old, first, second]})])
        # From now on the other brokers cannot reach the leader. Clients can.
        cut = faults.disconnect(None, node=old, brokers=True)
        lead(admin, tp, [first, old, second])
        lead(admin, tp, [old, first, second])
        producer = Producer(
            bootstrap, acks=1, enable_idempotence=False, kstore_kip359_enable=enabled
        )
        delivery = producer.send(topic, b"the record", partition=0)
        try:
            print("  the old leader acknowledges offset", delivery.result(timeout=2))
        except TimeoutError:
            print("  the old leader refuses the record; the producer retries")
        lead(admin, tp, [first, old, second])
        cut.remove()
    delivery.result()
    print("  another broker leads; the producer has its acknowledgement")
    producer.close()
    with Producer(bootstrap, acks="all") as later:
        later.send(topic, b"a later record", partition=0).result()
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([tp])
        consumer.seek_to_beginning(tp)
        found: list[bytes] = []
        while b"a later record" not in found:
            found += [record.value for record in consumer.poll(100)]
        print("  the log has", found)


settings = {"replica.lag.time.max.ms": 60_000, "auto.leader.rebalance.enable": False}
with tempfile.TemporaryDirectory() as folder, Cluster(folder, settings=settings) as cluster:
    print("without KIP-359:")
    show(cluster, "orders-without", enabled=False)
    print("with KIP-359:")
    show(cluster, "orders-with", enabled=True)
