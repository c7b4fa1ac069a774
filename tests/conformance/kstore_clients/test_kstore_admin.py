"""kstore's own admin client with a broker: with kstore's, and with Apache Kafka itself."""

from __future__ import annotations

import asyncio
import time
import uuid
from pathlib import Path

import pytest

from kstore.clients import AdminClient, AIOAdminClient
from kstore.clients.admin import (
    AbortSpec,
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ConfigChange,
    ConfigResource,
    ConfigSource,
    FeatureUpdate,
    GroupMember,
    NewPartitions,
    NewTopic,
    ReplicaOnBroker,
    ScramDeletion,
    ScramUpsertion,
    quota_entity,
)
from kstore.clients.io.cluster import GROUP, ClusterClient
from kstore.config.client.configs import client_settings
from kstore.errors import (
    BrokerNotAvailableError,
    ElectionNotNeededError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    InvalidConfigError,
    InvalidReplicaAssignmentError,
    InvalidUpdateVersionError,
    LogDirNotFoundError,
    NonEmptyGroupError,
    NoReassignmentInProgressError,
    OffsetOutOfRangeError,
    ResourceNotFoundError,
    SecurityDisabledError,
    TopicAlreadyExistsError,
    TransactionalIdNotFoundError,
    UnknownMemberIdError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kstore.types import OffsetAndMetadata, TopicPartition
from tests.beside.waiting import until
from tests.conformance.kafka_broker import KafkaBroker
from tests.plain_messages import Ask
from tests.reference.streams_members import subtopology, topic_info, topology

pytestmark = pytest.mark.slow

LATER_MS = 10**14
T0_MS = 1_700_000_000_000


def write(servers: str, topic: str, count: int) -> None:
    """Records a second apart from T0_MS on, in partition 0."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers})
    for n in range(count):
        producer.produce(topic, b"x", partition=0, timestamp=T0_MS + 1000 * n)
    assert producer.flush(60) == 0


def test_topics_by_name_and_by_id(admin: AdminClient, topic: str) -> None:
    node = admin.describe_cluster().brokers[0].node_id
    ids = admin.create_topics(
        [
            NewTopic(topic, 2, 1, {"retention.ms": "5000"}),
            NewTopic(topic + "-b", replicas={0: [node]}),
        ]
    )
    again = admin.create_topics([topic, topic + "-c"], raise_errors=False)
    assert list(again) == [topic + "-c"]
    assert isinstance(again.errors[topic], TopicAlreadyExistsError)
    admin.create_topics([topic + "-d"], validate_only=True)
    made = {topic, topic + "-b", topic + "-c"}
    until(lambda: made <= set(admin.list_topics()), "the topics are listed")
    assert topic + "-d" not in admin.list_topics()

    (by_name,) = admin.describe_topics([topic], authorized_operations=True)
    (by_id,) = admin.describe_topics([ids[topic]])
    assert by_name.topic_id == by_id.topic_id == ids[topic]
    assert by_name.partitions == by_id.partitions
    assert (
        by_name.authorized_operations is None or AclOperation.READ in by_name.authorized_operations
    )

    admin.create_partitions(topic, 3)
    admin.create_partitions({topic: 4, topic + "-b": NewPartitions(2, [[node]])})

    def sizes() -> list[int]:
        return [len(each.partitions) for each in admin.describe_topics([topic, topic + "-b"])]

    until(lambda: sizes() == [4, 2], "the topics have grown")
    with pytest.raises(InvalidReplicaAssignmentError, match=topic):
        admin.create_partitions(topic, 5, replicas=[[99]])

    nobody = uuid.uuid4()
    gone = admin.delete_topics([ids[topic], topic + "-b", topic + "-c"])
    assert set(gone) == {ids[topic], topic + "-b", topic + "-c"}
    failed = admin.delete_topics([nobody, topic], raise_errors=False).errors
    assert isinstance(failed[nobody], UnknownTopicIdError)
    assert isinstance(failed[topic], UnknownTopicOrPartitionError)
    until(lambda: topic not in admin.list_topics(), "the topic is gone")
    with pytest.raises(UnknownTopicOrPartitionError, match=topic):
        admin.describe_topics([topic])


def test_offsets_by_name_and_by_time_and_records_deleted(
    servers: str, admin: AdminClient, topic: str
) -> None:
    admin.create_topics([NewTopic(topic, 2)])
    write(servers, topic, 10)
    tp, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert admin.list_offsets({tp: "latest", empty: "latest"})[tp].offset == 10
    assert admin.list_offsets({tp: T0_MS + 3500})[tp][:2] == (4, T0_MS + 4000)
    assert admin.list_offsets({tp: LATER_MS})[tp].offset == -1
    assert admin.list_offsets({tp: "max_timestamp"})[tp][:2] == (9, T0_MS + 9000)
    assert admin.list_offsets({tp: "earliest-local"})[tp].offset == 0
    assert admin.list_offsets({tp: "latest"}, isolation_level="read_committed")[tp].offset == 10
    missing = TopicPartition(topic, 7)
    found = admin.list_offsets({tp: "earliest", missing: "earliest"}, raise_errors=False)
    assert found[tp].offset == 0
    assert isinstance(found.errors[missing], UnknownTopicOrPartitionError)
    with pytest.raises(ValueError, match="newest"):
        admin.list_offsets({tp: "newest"})

    assert admin.delete_records({tp: 4, empty: -1}) == {tp: 4, empty: 0}
    assert admin.list_offsets({tp: "earliest"})[tp].offset == 4
    with pytest.raises(OffsetOutOfRangeError, match=topic):
        admin.delete_records({tp: 11})


def test_configs_of_every_kind(admin: AdminClient, topic: str) -> None:
    admin.create_topics([topic])
    admin.alter_configs(topic, {"retention.ms": "5000", "cleanup.policy": "compact"})
    admin.alter_configs(topic, {"cleanup.policy": ConfigChange("append", "delete")})

    def value(name: str) -> str | None:
        return admin.describe_configs(topic)[name].value

    until(lambda: value("cleanup.policy") in {"compact,delete", "delete,compact"}, "it is set")
    found = admin.describe_configs(
        topic, keys=["cleanup.policy"], synonyms=True, documentation=True
    )
    assert list(found) == ["cleanup.policy"]
    entry = found["cleanup.policy"]
    assert set((entry.value or "").split(",")) == {"compact", "delete"}
    assert (entry.source, entry.value_type) == (ConfigSource.DYNAMIC_TOPIC, "list")
    assert entry.documentation
    assert entry.synonyms[0].source == ConfigSource.DYNAMIC_TOPIC
    admin.alter_configs(topic, {"retention.ms": None}, validate_only=True)
    assert admin.describe_configs(topic)["retention.ms"].value == "5000"
    admin.alter_configs(topic, {"retention.ms": None})
    until(lambda: value("retention.ms") == "604800000", "it has its default")
    assert admin.describe_configs(topic)["retention.ms"].source == ConfigSource.DEFAULT
    with pytest.raises(InvalidConfigError, match=topic):
        admin.alter_configs(topic, {"retention.ms": "soon"})

    node = str(admin.describe_cluster().brokers[0].node_id)
    own, everybody = ConfigResource("broker", node), ConfigResource("broker", "")
    logger, group = ConfigResource("broker-logger", node), ConfigResource("group", topic)
    metrics = ConfigResource("client-metrics", topic)
    admin.alter_resource_configs(
        {
            own: {"log.cleaner.threads": "2"},
            everybody: {"log.retention.ms": "70000000"},
            group: {"consumer.session.timeout.ms": "50000"},
            metrics: {"interval.ms": "5000"},
        }
    )
    wanted = {
        (own, "log.cleaner.threads", "2", ConfigSource.DYNAMIC_BROKER),
        (everybody, "log.retention.ms", "70000000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (group, "consumer.session.timeout.ms", "50000", ConfigSource.DYNAMIC_GROUP),
        (metrics, "interval.ms", "5000", ConfigSource.DYNAMIC_CLIENT_METRICS),
    }

    def set_now() -> bool:
        every = admin.describe_resource_configs([own, everybody, group, metrics, logger])
        entries = {(r, key): every[r].get(key) for r, key, _, _ in wanted}
        found = {(r, key, e.value, e.source) for (r, key), e in entries.items() if e is not None}
        return found == wanted and bool(every[logger])

    until(set_now, "what was set is in force")
    until(
        lambda: {group, metrics} <= set(admin.list_config_resources(["group", "client-metrics"])),
        "the resources are listed",
    )
    assert own in admin.list_config_resources()
    admin.alter_resource_configs(
        {own: {"log.cleaner.threads": None}, everybody: {"log.retention.ms": None}}
    )
    with pytest.raises(BrokerNotAvailableError, match="99"):
        admin.describe_configs("99", resource="broker")


def test_committed_offsets_and_groups_without_members(admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 3)])
    one, two, three = (TopicPartition(topic, n) for n in range(3))
    group = topic + "-g"
    admin.alter_group_offsets(group, {one: 0, two: OffsetAndMetadata(0, "note")})
    found = admin.list_group_offsets(group)
    assert list(found) == [one, two]
    assert (found[two].offset, found[two].metadata) == (0, "note")
    assert list(admin.list_group_offsets(group, [two, three], require_stable=True)) == [two]
    rows = {row.group_id: row for row in admin.list_groups(states=["Empty"], types=["classic"])}
    assert (rows[group].group_type, rows[group].state) == ("classic", "Empty")
    described = admin.describe_groups([group, "nobody"], raise_errors=False)
    assert (described[group].state, described[group].members) == ("Empty", ())
    assert isinstance(described.errors["nobody"], GroupIdNotFoundError)
    assert list(admin.delete_group_offsets(group, [one])) == [one]
    assert list(admin.list_group_offsets(group)) == [two]
    failed = admin.remove_members(group, [GroupMember("x")], raise_errors=False).errors
    assert isinstance(failed[GroupMember("x")], UnknownMemberIdError)
    gone = admin.delete_groups([group, "nobody"], raise_errors=False)
    assert list(gone) == [group]
    assert isinstance(gone.errors["nobody"], GroupIdNotFoundError)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members(servers: str, admin: AdminClient, topic: str, protocol: str) -> None:
    from confluent_kafka import Consumer

    admin.create_topics([NewTopic(topic, 2)])
    settings = {"bootstrap.servers": servers, "group.id": topic, "group.protocol": protocol}
    consumer = Consumer(settings | {"group.instance.id": "one", "client.id": "reader"})
    try:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.1)
        described = admin.describe_groups([topic], authorized_operations=True)[topic]
        assert (described.group_type, described.state) == (protocol, "Stable")
        (member,) = described.members
        assert (member.client_id, member.group_instance_id) == ("reader", "one")
        assert member.topics == (topic,)
        assert member.assignment == (TopicPartition(topic, 0), TopicPartition(topic, 1))
        assert (described.epoch is None) == (protocol == "classic")
        with pytest.raises(NonEmptyGroupError, match=topic):
            admin.delete_groups([topic])
        with pytest.raises(UnknownMemberIdError):
            admin.alter_group_offsets(topic, {TopicPartition(topic, 0): 0})
        admin_failure = admin.delete_group_offsets(
            topic, [TopicPartition(topic, 0)], raise_errors=False
        ).errors
        assert isinstance(admin_failure[TopicPartition(topic, 0)], GroupSubscribedToTopicError)
        if protocol == "classic":
            admin.remove_members(topic, reason="a test")
            assert admin.describe_groups([topic])[topic].members == ()
    finally:
        consumer.close()


def test_a_streams_group(servers: str, admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 2)])
    until(lambda: topic in admin.list_topics(), "the topic is known")
    until(lambda: asyncio.run(heartbeat(servers, topic)) == 0, "a member has joined")
    found = admin.describe_groups([topic])[topic]
    assert (found.group_type, found.protocol_type) == ("streams", "streams")
    (member,) = found.members
    assert (member.member_id, member.process_id) == ("member-1", "p")
    (part,) = found.topology
    assert (part.subtopology_id, part.source_topics) == ("0", (topic,))
    assert part.changelog_topics == (f"{topic}-changelog",)
    assert topic in [row.group_id for row in admin.list_groups(types=["streams"])]


async def heartbeat(servers: str, topic: str) -> int:
    """Join a streams group that is named after its topic; the error code."""
    cluster = ClusterClient(client_settings("admin", servers))
    part = subtopology("0", topic, state_changelog_topics=[topic_info(f"{topic}-changelog")])
    request = Ask.StreamsGroupHeartbeat(
        group_id=topic, member_id="member-1", rebalance_timeout_ms=60_000,
        topology=topology(part, epoch=1), active_tasks=[], standby_tasks=[], warmup_tasks=[],
        process_id="p", client_tags=[],
    )  # fmt: skip
    try:
        answer = await cluster.ask(await cluster.coordinator(GROUP, topic), request)
        return answer.error_code  # type: ignore[attr-defined, no-any-return]
    finally:
        await cluster.close()


def test_quotas_and_scram_credentials(admin: AdminClient, topic: str) -> None:
    user, anybody = quota_entity(user=topic), quota_entity(user=topic, client_id=None)
    admin.alter_client_quotas(
        {user: {"producer_byte_rate": 1e6}, anybody: {"request_percentage": 50.0}}
    )
    both = {user: {"producer_byte_rate": 1e6}, anybody: {"request_percentage": 50.0}}
    until(lambda: admin.describe_client_quotas({"user": topic}) == both, "the quotas are there")
    assert list(admin.describe_client_quotas({"user": topic}, strict=True)) == [user]
    assert anybody in admin.describe_client_quotas({"user": "*", "client-id": None})
    admin.alter_client_quotas({user: {"producer_byte_rate": None}}, validate_only=True)
    admin.alter_client_quotas(
        {user: {"producer_byte_rate": None}, anybody: {"request_percentage": None}}
    )
    until(lambda: admin.describe_client_quotas({"user": topic}) == {}, "the quotas are gone")

    admin.alter_scram_credentials([ScramUpsertion(topic, "SCRAM-SHA-512", b"secret", 5000)])
    until(lambda: topic in admin.describe_scram_credentials(), "the credential is there")
    ((mechanism, iterations),) = admin.describe_scram_credentials([topic])[topic]
    assert (mechanism, iterations) == ("SCRAM-SHA-512", 5000)
    mixed = admin.alter_scram_credentials(
        [ScramDeletion(topic, "SCRAM-SHA-512"), ScramDeletion("nobody", "SCRAM-SHA-256")],
        raise_errors=False,
    )
    assert isinstance(mixed.errors["nobody"], ResourceNotFoundError)
    assert list(mixed) == [topic]
    until(lambda: topic not in admin.describe_scram_credentials(), "the credential is gone")
    with pytest.raises(ResourceNotFoundError, match=topic):
        admin.describe_scram_credentials([topic])


def test_transactions(servers: str, admin: AdminClient, topic: str) -> None:
    from confluent_kafka import KafkaException, Producer

    admin.create_topics([topic])
    tp = TopicPartition(topic, 0)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"1")
    producer.flush()
    listed = admin.list_transactions(states=["Ongoing"], id_pattern=topic)
    assert [row.transactional_id for row in listed] == [topic]
    described = admin.describe_transactions([topic, "nobody"], raise_errors=False)
    assert (described[topic].state, described[topic].partitions) == ("Ongoing", (tp,))
    assert isinstance(described.errors["nobody"], TransactionalIdNotFoundError)
    (state,) = admin.describe_producers([tp])[tp]
    assert (state.producer_id, state.txn_start_offset) == (listed[0].producer_id, 0)
    assert admin.find_hanging_transactions([tp], now_ms=LATER_MS) == []

    # The coordinator still believes that it is open: this removes it without the coordinator's
    # knowledge.
    spec = AbortSpec(tp, state.producer_id, state.producer_epoch, max(state.coordinator_epoch, 0))
    admin.abort_transaction(spec)
    (state,) = admin.describe_producers([tp])[tp]
    assert state.txn_start_offset == -1

    admin.fence_producers([topic])
    with pytest.raises(KafkaException):
        producer.commit_transaction()
    deadline = time.monotonic() + 60
    while admin.describe_transactions([topic])[topic].state == "Ongoing":
        assert time.monotonic() < deadline


def test_elections_reassignments_and_log_dirs(admin: AdminClient, topic: str) -> None:
    admin.create_topics([topic])
    tp = TopicPartition(topic, 0)
    node = admin.describe_cluster().brokers[0].node_id
    assert tp not in admin.elect_leaders()
    failed = admin.elect_leaders([tp], raise_errors=False).errors
    assert isinstance(failed[tp], ElectionNotNeededError)
    assert admin.list_partition_reassignments([tp]) == {}
    with pytest.raises(NoReassignmentInProgressError, match=topic):
        admin.alter_partition_reassignments({tp: None})
    with pytest.raises(InvalidReplicaAssignmentError, match=topic):
        admin.alter_partition_reassignments({tp: [99]})
    admin.alter_partition_reassignments({tp: [node]})

    ((path, found),) = admin.describe_log_dirs([node], partitions=[tp])[node].items()
    assert found.error is None
    assert found.replicas[tp].offset_lag == 0
    assert 0 < found.usable_bytes <= found.total_bytes
    replica = ReplicaOnBroker(topic, 0, node)
    admin.alter_replica_log_dirs({replica: path})
    moved = admin.alter_replica_log_dirs({replica: "/nowhere"}, raise_errors=False)
    assert isinstance(moved.errors[replica], LogDirNotFoundError)


def test_the_cluster_and_its_features(servers: str, admin: AdminClient) -> None:
    found = admin.describe_cluster(fenced_brokers=True, authorized_operations=True)
    assert found.cluster_id
    assert [f"{each.host}:{each.port}" for each in found.brokers] == [servers]
    features = admin.describe_features()
    assert features.finalized["transaction.version"] == (2, 2)
    assert features.supported["transaction.version"].highest == 2
    admin.update_features({"transaction.version": FeatureUpdate(1, "safe-downgrade")},
                          validate_only=True)  # fmt: skip
    with pytest.raises(InvalidUpdateVersionError):
        admin.update_features({"transaction.version": 99})
    assert admin.describe_features().finalized["transaction.version"] == (2, 2)


def test_without_an_authorizer_there_are_no_acls(admin: AdminClient) -> None:
    with pytest.raises(SecurityDisabledError):
        admin.describe_acls()
    acl = Acl(AclResourceType.TOPIC, "t", "User:a", AclOperation.READ)
    with pytest.raises(SecurityDisabledError):
        admin.create_acls([acl])
    with pytest.raises(SecurityDisabledError):
        admin.delete_acls([AclFilter(principal="User:a")])


def test_many_requests_at_once_on_the_users_own_loop(servers: str, topic: str) -> None:
    async def story() -> None:
        async with AIOAdminClient({"bootstrap.servers": servers}, client_id="aio") as admin:
            names = [f"{topic}-{n}" for n in range(5)]
            await asyncio.gather(*(admin.create_topics([name]) for name in names))
            assert set(names) <= set(await admin.list_topics())
            partitions = [TopicPartition(name, 0) for name in names]
            found = await admin.list_offsets(dict.fromkeys(partitions, "latest"))
            assert [row.offset for row in found.values()] == [0] * 5
            await admin.delete_topics(names)

    asyncio.run(story())


@pytest.mark.thorough
@pytest.mark.java
def test_acls_of_a_kafka_with_an_authorizer(kafka_jars: Path, tmp_path: Path) -> None:
    overrides = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    alice = Acl(AclResourceType.TOPIC, "orders", "User:alice", AclOperation.READ)
    prefixed = Acl(
        AclResourceType.TOPIC, "ord", "User:bob", AclOperation.WRITE, AclPermission.DENY,
        "10.0.0.1", AclPatternType.PREFIXED,
    )  # fmt: skip
    cluster = Acl(AclResourceType.CLUSTER, "kafka-cluster", "User:alice", AclOperation.CREATE)
    with (
        KafkaBroker(tmp_path, overrides=overrides) as broker,
        AdminClient(broker.bootstrap, default_api_timeout_ms=30_000) as admin,
    ):
        assert admin.describe_acls() == []
        admin.create_acls([alice, prefixed, cluster])
        until(lambda: set(admin.describe_acls()) == {alice, prefixed, cluster}, "they are there")
        matching = AclFilter(AclResourceType.TOPIC, "orders", pattern_type=AclPatternType.MATCH)
        assert set(admin.describe_acls(matching)) == {alice, prefixed}
        assert set(admin.describe_acls(AclFilter(principal="User:alice"))) == {alice, cluster}
        wrong = Acl(AclResourceType.CLUSTER, "mine", "User:alice", AclOperation.CREATE)
        results = admin.create_acls([wrong, alice], raise_errors=False)
        assert list(results.errors) == [wrong]
        gone = admin.delete_acls([AclFilter(principal="User:bob"), AclFilter(host="1.2.3.4")])
        assert [list(acls) for acls in gone.values()] == [[prefixed], []]
        until(lambda: set(admin.describe_acls()) == {alice, cluster}, "one is gone")
