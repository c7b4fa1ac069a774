"""KIP-391: a copier crashes and starts again, without and with given offsets."""

import tempfile

from kstore.clients import (
    AdminClient,
    Consumer,
    ConsumerRecord,
    InvalidProduceOffsetError,
    NewTopic,
    Producer,
    ProducerRecord,
    TopicPartition,
)
from kstore.testing import Broker


def write_orders(bootstrap: str) -> None:
    """Write two transactions. The marker at the end of each also takes an offset."""
    with Producer(bootstrap, transactional_id="shop") as producer:
        producer.init_transactions()
        for orders in ([b"order-0", b"order-1"], [b"order-2", b"order-3"]):
            producer.begin_transaction()
            for order in orders:
                producer.send("orders", order, partition=0)
            producer.commit_transaction()


def read(bootstrap: str, topic: str, start: int = 0) -> list[ConsumerRecord]:
    """The records from an offset to the end of the partition."""
    tp = TopicPartition(topic, 0)
    found: list[ConsumerRecord] = []
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([tp])
        consumer.seek(tp, start)
        end = consumer.end_offsets([tp])[tp]
        while consumer.position(tp) < end:
            found += consumer.poll(100)
    return found


def copy(records: list[ConsumerRecord], bootstrap: str, topic: str, *, given: bool) -> None:
    """Copy records one by one. The error of a refused record says where the copy ends."""
    with Producer(bootstrap) as producer:
        end = 0
        for record in records:
            if record.offset < end:
                continue  # the copy already has it
            offset = record.offset if given else None
            delivery = producer.send(
                ProducerRecord(topic, record.value, partition=0, offset=offset)
            )
            producer.flush(raise_errors=False)
            if isinstance(delivery.error, InvalidProduceOffsetError):
                end = delivery.error.log_end_offset
                print(f"  refused at offset {record.offset}: the copy ends at {end}")


with (
    tempfile.TemporaryDirectory() as folder,
    Broker(f"{folder}/source") as source,
    Broker(f"{folder}/copy") as target,
):
    for broker, topics in ((source, ["orders"]), (target, ["without", "with"])):
        with AdminClient(str(broker)) as admin:
            admin.create_topics([NewTopic(topic, 1) for topic in topics])
    write_orders(str(source))
    orders = read(str(source), "orders")
    print("source:", *(f"{record.offset}={record.value.decode()}" for record in orders))

    for topic in ("without", "with"):
        print(f"{topic} KIP-391:")
        copy(orders[:2], str(target), topic, given=topic == "with")
        # It crashes here, before it stores its position. It starts again at 0.
        copy(orders, str(target), topic, given=topic == "with")
        copied = read(str(target), topic)
        print("  copy:", *(f"{record.offset}={record.value.decode()}" for record in copied))
        # A group has committed offset 3 on the source, and moves to the copy.
        print("  a group at offset 3 continues with", read(str(target), topic, 3)[0].value)
