"""KAFKA-19779: a transaction commits offsets while its group rebalances, with the old rule and with
assignment epochs.
"""

import sys
import tempfile
from collections.abc import Mapping
from uuid import UUID

import kstore.__main__
from kstore.broker.state.groups.consumer.group import ConsumerGroup
from kstore.broker.state.groups.contract import CommitClaim
from kstore.clients import (
    AdminClient,
    Consumer,
    ConsumerGroupMetadata,
    KafkaError,
    NewTopic,
    Producer,
    TopicPartition,
)
from kstore.errors import ErrorCode
from kstore.testing import Broker, brokers


def old_rule(
    self: ConsumerGroup, claim: CommitClaim, topic: str, topic_id: UUID, partition: int
) -> int:
    """The check of a broker without KAFKA-19779: only the member's latest epoch may commit."""
    member = self.members.get(claim.member_id)
    is_latest = member is None or claim.epoch == member.epoch
    return ErrorCode.NONE if is_latest else ErrorCode.ILLEGAL_GENERATION


def commit(
    bootstrap: str, offsets: Mapping[TopicPartition, int], metadata: ConsumerGroupMetadata
) -> str:
    """Commit offsets in a transaction, and return the outcome."""
    with Producer(bootstrap, transactional_id="worker") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        try:
            producer.send_offsets_to_transaction(offsets, metadata)
        except KafkaError as error:
            producer.abort_transaction()
            return f"aborted ({type(error).__name__})"
        producer.commit_transaction()
        return "committed"


def show(bootstrap: str) -> None:
    """One member begins a transaction, another one joins, and the transaction commits offsets."""
    group = {"bootstrap.servers": bootstrap, "group.id": "workers", "enable.auto.commit": False}
    with AdminClient(bootstrap) as admin:
        admin.create_topics([NewTopic("orders", 2)])
    with Consumer(group) as member:
        member.subscribe(["orders"])
        while len(member.assignment()) < 2:
            member.poll(100)
        metadata = member.group_metadata()  # the transaction begins here
        with Consumer(group) as other:
            other.subscribe(["orders"])
            while not other.assignment():
                member.poll(50)
                other.poll(50)
            for whose, consumer in (("that it still has", member), ("that it gave up", other)):
                offsets = dict.fromkeys(consumer.assignment(), 5)
                print(f"  the partition {whose}:", commit(bootstrap, offsets, metadata))


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:  # the broker of the first part
        ConsumerGroup.partition_commit_error = old_rule
        sys.exit(kstore.__main__.main())
    quick = {
        "group.consumer.assignment.interval.ms": 0,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.heartbeat.interval.ms": 100,
    }
    serve = brokers.serve_command
    with tempfile.TemporaryDirectory() as folder:
        brokers.serve_command = lambda *flags: [sys.executable, __file__, "serve", "--json", *flags]
        with Broker(f"{folder}/old", quick) as broker:
            print("without KAFKA-19779, the first member commits")
            show(str(broker))
        brokers.serve_command = serve
        with Broker(f"{folder}/new", quick) as broker:
            print("with KAFKA-19779, the first member commits")
            show(str(broker))
