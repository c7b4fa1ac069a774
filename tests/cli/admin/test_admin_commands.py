"""The administrator's commands against a running broker: what they print, and their exit codes.

Commands are run in this process, through the same entry point as `kstore`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kstore.cli.admin import group_reset
from kstore.clients import AdminClient, OffsetFinding
from kstore.clients.core.consumer.offset_epoch import encode
from kstore.types import OffsetAndMetadata, TopicPartition
from tests.cli.shell import Shell
from tests.conformance.kstore_broker import KstoreBroker

pytestmark = pytest.mark.slow

T0_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KstoreBroker]:
    """One broker for this file, with two log dirs."""
    folder = tmp_path_factory.mktemp("admin-cli")
    second = folder / "second"
    with KstoreBroker(folder, overrides={"log.dirs": f"{folder / 'first'},{second}"}) as running:
        yield running


@pytest.fixture
def kstore(broker: KstoreBroker, tmp_path: Path) -> Shell:
    """The shell of one test."""
    return Shell(broker.bootstrap, XDG_CONFIG_HOME=str(tmp_path))


@pytest.fixture
def admin(broker: KstoreBroker) -> Iterator[AdminClient]:
    """A client beside the commands."""
    with AdminClient(broker.bootstrap, default_api_timeout_ms=20_000) as client:
        yield client


def fill(broker: KstoreBroker, topic: str, count: int = 10) -> None:
    """Write records, one a second from T0_MS on."""
    from kstore.clients import Producer

    with Producer(broker.bootstrap) as producer:
        for n in range(count):
            producer.send(topic, b"%d" % n, partition=0, timestamp=T0_MS + 1000 * n)
        producer.flush()


def test_a_topic_is_changed_and_its_offsets_are_shown(kstore: Shell, broker: KstoreBroker) -> None:
    kstore.text("topic", "create", "life", "--dry-run")
    assert "life" not in kstore.text("topic", "list")
    kstore.text("topic", "create", "life", "--replicas", "1", "--replicas", "1")
    changes = ["--partitions", "3", "-c", "retention.ms=-1", "--unset", "segment.bytes"]
    kstore.text("topic", "alter", "life", *changes, "--dry-run")
    (found,) = kstore.json("topic", "describe", "life")
    assert (len(found["partitions"]), found["configs"]) == (2, {})
    kstore.text("topic", "alter", "life", *changes)
    (found,) = kstore.json("topic", "describe", "life")
    assert (len(found["partitions"]), found["configs"]) == (3, {"retention.ms": "-1"})
    fewer = ("topic", "alter", "life", "--partitions", "1")
    assert "would not be an increase. Ask for more than 3. (--shrink" in kstore.text(*fewer, code=1)
    assert "needs kstore.partition.count.required=true" in kstore.text(*fewer, "--shrink", code=1)
    assert "use --partitions" in kstore.text("topic", "alter", "life", "--shrink", code=2)
    fill(broker, "life")
    assert [row["offset"] for row in kstore.json("topic", "offsets", "life")] == [10, 0, 0]
    rows = kstore.json("topic", "offsets", "life", "--at", "2023-11-14T22:13:22.5")
    assert (rows[0]["offset"], rows[0]["timestamp"]) == (3, T0_MS + 3000)
    (row,) = kstore.json("topic", "delete-records", "life:0=4")
    assert row["log_start_offset"] == 4
    table = kstore.text("topic", "offsets", "life", "--at", "earliest").splitlines()
    assert table[0].split() == ["TOPIC", "PARTITION", "OFFSET", "TIMESTAMP"]
    assert table[1].split() == ["life", "0", "4", "-"]
    kstore.text("topic", "create", "other")
    (other,) = kstore.json("topic", "describe", "other")
    kstore.text("topic", "delete", "--id", other["id"])
    assert "UNKNOWN_TOPIC" in kstore.text("topic", "delete", "life", "other", code=1)
    assert "life" not in kstore.text("topic", "list")


def reset(kstore: Shell, *arguments: str) -> list[tuple[int, int]]:
    """(old, new) offsets of the partitions that a reset shows."""
    rows = kstore.json("group", "reset-offsets", "g", *arguments)
    return [(row["old_offset"], row["new_offset"]) for row in rows]


def test_a_reset_for_a_topic_that_was_deleted_meanwhile_is_refused(
    kstore: Shell, broker: KstoreBroker, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.create_topics(["reset-late"])
    fill(broker, "reset-late")
    apply = group_reset._apply

    def later(*given: Any, **more: Any) -> None:
        admin.delete_topics(["reset-late"])
        admin.create_topics(["reset-late"])
        apply(*given, **more)

    monkeypatch.setattr(group_reset, "_apply", later)
    told = kstore.text(
        "group", "reset-offsets", "g-late", "--topic", "reset-late", "--to-latest", "--execute",
        code=1,
    )  # fmt: skip
    assert "INVALID_PARTITION_EPOCH" in told
    assert admin.list_group_offsets("g-late") == {}


@pytest.mark.parametrize("way", ["--shift-by=-2", "--to-current"])
def test_an_offset_of_a_deleted_topic_is_no_place_to_reset_from(
    kstore: Shell, broker: KstoreBroker, admin: AdminClient, monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:  # fmt: skip
    """A coordinator that does not know about the deletion still has it (KIP-232)."""
    topic = f"other-life{way.replace('=', '')}"
    tp = TopicPartition(topic, 0)
    admin.create_topics([topic])
    fill(broker, topic)
    epoch = admin.list_offsets({tp: "latest"})[tp].partition_epoch
    admin.delete_topics([topic])
    admin.create_topics([topic])
    fill(broker, topic)
    late = {tp: OffsetAndMetadata(7, offset_epoch=encode(epoch, -1))}
    where = ("group", "reset-offsets", "g-other", "--topic", topic, "--execute")
    with monkeypatch.context() as patched:
        patched.setattr(AdminClient, "list_group_offsets", lambda *_: late)
        told = kstore.text(*where, way, code=1)
    assert f"committed for {topic}:0 belong to an earlier topic of that name" in told
    kstore.text(*where, "--to-offset=3")
    assert admin.list_group_offsets("g-other")[tp].offset == 3
    admin.delete_groups(["g-other"])


def test_offsets_of_a_group_are_reset_shown_and_deleted(
    kstore: Shell, broker: KstoreBroker, admin: AdminClient
) -> None:
    admin.create_topics(["reset"])
    fill(broker, "reset")
    tp = TopicPartition("reset", 0)
    assert "nothing was changed" in kstore.text(
        "group", "reset-offsets", "g", "--topic", "reset", "--to-earliest"
    )
    assert admin.list_groups() == []
    where = ["--topic", "reset:0", "--execute"]
    assert reset(kstore, *where, "--to-offset", "7") == [(None, 7)]
    assert admin.list_group_offsets("g")[tp].offset == 7
    assert reset(kstore, "--all-topics", "--shift-by", "-2", "--execute") == [(7, 5)]
    assert reset(kstore, *where, "--shift-by", "100") == [(5, 10)]
    assert reset(kstore, *where, "--to-earliest") == [(10, 0)]
    assert reset(kstore, *where, "--to-latest") == [(0, 10)]
    assert reset(kstore, *where, "--to-current") == [(10, 10)]
    assert reset(kstore, *where, "--to-datetime", str(T0_MS + 3500)) == [(10, 4)]
    assert reset(kstore, *where, "--by-duration", "1h") == [(4, 10)]
    assert reset(kstore, *where, "--by-duration", "P20000D") == [(10, 0)]
    assert reset(kstore, *where, "--to-offset", "6") == [(0, 6)]
    assert reset(kstore, "--topic", "reset", "--to-earliest", "--dry-run") == [(6, 0)]
    assert admin.list_group_offsets("g")[tp].offset == 6

    (group,) = kstore.json("group", "describe", "g")
    assert (group["type"], group["state"], group["members"]) == ("classic", "Empty", 0)
    (row,) = group["offsets"]
    assert (row["committed"], row["end_offset"], row["lag"]) == (6, 10, 4)
    assert "reset" in kstore.text("group", "describe", "g")
    assert "g  " in kstore.text("group", "list", "--state", "Empty", "--type", "classic")
    assert kstore.text("group", "list", "--state", "Stable") == ""
    assert kstore.text("group", "members", "g") == ""
    kstore.text("group", "delete-offsets", "g", "--topic", "reset")
    assert kstore.json("group", "delete", "g") == [{"deleted": "g"}]
    assert "GROUP_ID_NOT_FOUND" in kstore.text("group", "describe", "g", code=1)
    assert "GROUP_ID_NOT_FOUND" in kstore.text("group", "delete", "g", code=1)


def test_a_groups_offsets_are_compared_with_the_logs(
    kstore: Shell, broker: KstoreBroker, admin: AdminClient
) -> None:
    topics = ["kept", "plain", "short"]
    admin.create_topics(topics)
    for topic in topics:
        fill(broker, topic)
    kept, plain, short = (TopicPartition(topic, 0) for topic in topics)
    epoch = admin.list_offsets({kept: "latest"})[kept].leader_epoch
    right = {kept: OffsetAndMetadata(10, "", epoch), plain: 10}
    admin.alter_group_offsets("right", right)
    admin.alter_group_offsets("wrong", {short: 11})
    admin.alter_group_offsets("wrong-epoch", {kept: OffsetAndMetadata(11, "", epoch)})
    found = kstore.json("verify", "--group", "right")
    assert found == kstore.json("group", "verify", "right")
    assert [(row["topic"], row["finding"]) for row in found] == [
        ("kept", "in log"), ("plain", "unchecked"),
    ]  # fmt: skip
    kstore.text("group", "verify", "right", "wrong", code=1)
    assert admin.verify_group_offsets("wrong")[short].finding is OffsetFinding.BEYOND_END
    kstore.text("group", "verify", "wrong-epoch", code=1)
    lost = admin.verify_group_offsets("wrong-epoch")[kept].lost
    assert lost is not None
    assert (lost.first_offset, lost.last_offset, lost.is_exact) == (10, 10, True)


def test_a_group_with_members_is_not_reset_and_a_member_can_be_removed(
    kstore: Shell, broker: KstoreBroker, admin: AdminClient
) -> None:
    from confluent_kafka import Consumer

    admin.create_topics(["busy"])
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "busy",
        "group.instance.id": "one",
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe(["busy"])
        while not consumer.assignment():
            consumer.poll(0.1)
        (row,) = kstore.json("group", "members", "busy")
        assert (row["instance_id"], row["assignment"]) == ("one", ["busy:0"])
        refused = kstore.text(
            "group", "reset-offsets", "busy", "--topic", "busy", "--to-latest", "--execute", code=1
        )
        assert "has 1 members" in refused
        (group,) = kstore.json("group", "describe", "busy")
        assert group["offsets"][0]["client_id"]
        kstore.text("group", "members", "busy", "--remove-instance", "one")
        assert kstore.text("group", "members", "busy") == ""
    finally:
        consumer.close()


def test_configs_are_set_shown_and_unset(kstore: Shell, admin: AdminClient) -> None:
    admin.create_topics(["settings"])
    kstore.text("config", "set", "topic", "settings", "retention.ms=5000", "cleanup.policy=compact")
    kstore.text("config", "set", "topic", "settings", "cleanup.policy=delete", "--append")
    own = {row["name"]: row for row in kstore.json("config", "describe", "topic", "settings")}
    assert own["cleanup.policy"]["value"] == "compact,delete"
    assert own["retention.ms"]["source"] == "dynamic-topic"
    everything = kstore.json("config", "describe", "topic", "settings", "--all")
    assert len(everything) > len(own)
    text = kstore.text("config", "describe", "topic", "settings", "--key", "retention.ms", "--docs")
    assert text.startswith("retention.ms=5000")
    kstore.text("config", "unset", "topic", "settings", "retention.ms", "--dry-run")
    kstore.text("config", "unset", "topic", "settings", "retention.ms")
    left = {row["name"] for row in kstore.json("config", "describe", "topic", "settings")}
    assert left & {"retention.ms", "cleanup.policy"} == {"cleanup.policy"}
    kstore.text("config", "set", "broker", "default", "log.retention.ms=7000")
    (row,) = kstore.json("config", "describe", "broker", "default", "--key", "log.retention.ms")
    assert (row["value"], row["source"]) == ("7000", "dynamic-default-broker")
    kstore.text("config", "unset", "broker", "default", "log.retention.ms")
    kstore.text("config", "set", "group", "g1", "consumer.session.timeout.ms=50000")
    assert kstore.json("config", "list", "--kind", "group") == [{"kind": "group", "name": "g1"}]
    assert "INVALID_CONFIG" in kstore.text(
        "config", "set", "topic", "settings", "no.such=1", code=1
    )


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("config unset topic typos retention.mss", "did you mean retention.ms?"),
        ("config unset broker default log.retention.mss", "did you mean log.retention.ms?"),
        ("config unset broker 1 log.retention.mss", "did you mean log.retention.ms?"),
        ("config unset group g2 consumer.session.timeout", "did you mean consumer.session.time"),
        ("config unset client-metrics m interval", "did you mean interval.ms?"),
        ("topic alter typos --unset retention.mss", "did you mean retention.ms?"),
    ],
)
def test_a_config_that_does_not_exist_is_not_unset(
    kstore: Shell, admin: AdminClient, words: str, hint: str
) -> None:
    admin.create_topics(["typos"], raise_errors=False)
    assert hint in kstore.text(*words.split(), code=1)


@pytest.mark.parametrize(
    "words",
    [
        "config unset topic typos retention.ms",
        "config unset broker default log.retention.ms",
        "config unset broker 1 listener.name.internal.ssl.keystore.location",
        "config unset group g2 consumer.session.timeout.ms",
        "config unset client-metrics m interval.ms",
    ],
)
def test_a_config_that_is_not_set_may_be_unset(
    kstore: Shell, admin: AdminClient, words: str
) -> None:
    admin.create_topics(["typos"], raise_errors=False)
    assert "changed" in kstore.text(*words.split())


def test_transactions_are_listed_described_and_aborted(
    kstore: Shell, broker: KstoreBroker, admin: AdminClient
) -> None:
    from confluent_kafka import KafkaException, Producer

    admin.create_topics(["money"])
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "payer"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("money", b"1")
    producer.flush()
    (row,) = kstore.json("txn", "list", "--state", "Ongoing", "--match", "pay.*")
    assert row["transactional_id"] == "payer"
    assert "--state is Empty or Ongoing or" in kstore.text("txn", "list", "--state", "Open", code=2)
    assert len(kstore.json("txn", "list", "--state", "ongoing")) == 1
    (row,) = kstore.json("txn", "describe", "payer")
    assert (row["state"], row["partitions"]) == ("Ongoing", ["money:0"])
    (row,) = kstore.json("txn", "producers", "money:0")
    assert row["txn_start_offset"] == 0
    assert kstore.text("txn", "hanging", "--topic", "money", "--older-than", "0s") == ""
    assert "fenced payer" in kstore.text("txn", "abort", "--transactional-id", "payer")
    with pytest.raises(KafkaException):
        producer.commit_transaction()
    (row,) = kstore.json("txn", "producers", "money:0")
    assert row["txn_start_offset"] is None
    assert "begins at 5" in kstore.text("txn", "abort", "money:0", "--start-offset", "5", code=1)
    assert "TRANSACTIONAL_ID_NOT_FOUND" in kstore.text("txn", "describe", "nobody", code=1)


def test_quotas_and_users(kstore: Shell) -> None:
    kstore.text(
        "quota", "set", "--user", "alice", "--client-id", "<default>", "producer_byte_rate=5"
    )
    (row,) = kstore.json("quota", "list", "--user", "alice")
    entity = "client-id <default>, user alice"
    assert row == {"entity": entity, "quota": "producer_byte_rate", "value": 5.0}
    kstore.text(
        "quota", "remove", "--user", "alice", "--client-id", "<default>", "producer_byte_rate"
    )
    assert kstore.text("quota", "list") == ""

    added = "user", "set", "alice", "--mechanism", "scram-sha-256"
    said = kstore.text(*added, stdin=b"hunter2\n")
    assert "hunter2" not in said
    (row,) = kstore.json("user", "list")
    assert row == {"user": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 8192}
    kstore.text("user", "remove", "alice", "--mechanism", "SCRAM-SHA-256")
    assert kstore.text("user", "list") == ""


def test_the_cluster_its_features_and_log_dirs(
    kstore: Shell, broker: KstoreBroker, admin: AdminClient
) -> None:
    (found,) = kstore.json("cluster", "describe")
    assert [row["node_id"] for row in found["brokers"]] == [found["controller_id"]]
    assert found["cluster_id"] in kstore.text("cluster", "describe")
    features = {row["feature"]: row for row in kstore.json("feature", "describe")}
    level = features["transaction.version"]["finalized"]
    kstore.text("feature", "update", f"transaction.version={level}", "--dry-run")
    assert "kstore: " in kstore.text("feature", "update", "no.such=1", code=1)

    admin.create_topics(["places"])
    first, second = (row["log_dir"] for row in kstore.json("logdirs", "describe"))
    (row,) = kstore.json("logdirs", "describe", "--topic", "places")
    target = second if row["log_dir"] == first else first
    node = str(found["controller_id"])
    kstore.text("logdirs", "move", "places:0", "--broker", node, "--to", target)
    deadline = time.monotonic() + 60
    while [r["log_dir"] for r in kstore.json("logdirs", "describe", "--topic", "places")] != [
        target
    ]:
        assert time.monotonic() < deadline
    assert "LOG_DIR_NOT_FOUND" in kstore.text(
        "logdirs", "move", "places:0", "--broker", node, "--to", "/nowhere", code=1
    )
    assert kstore.text("reassign", "list") == ""
    assert "places-0" in kstore.text("reassign", "cancel", "places:0", code=1)
    assert "places-0" in kstore.text("elect", "places:0", code=1)
    assert kstore.text("elect", "--all") == ""


def test_acls_need_an_authorizer(kstore: Shell) -> None:
    assert "SECURITY_DISABLED" in kstore.text("acl", "list", code=1)
    who = ["--principal", "User:a", "--topic", "t"]
    assert "SECURITY_DISABLED" in kstore.text("acl", "add", *who, "--operation", "read", code=1)
    assert "SECURITY_DISABLED" in kstore.text("acl", "remove", *who, code=1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("topic", "alter", "t"),
        ("topic", "offsets", "t", "--at", "soon"),
        ("topic", "delete-records", "t:0=x"),
        ("group", "reset-offsets", "g", "--topic", "t"),
        ("group", "reset-offsets", "g", "--topic", "t", "--to-earliest", "--to-latest"),
        ("group", "reset-offsets", "g", "--to-latest"),
        ("config", "describe", "topics", "t"),
        ("config", "describe", "broker", "x"),
        ("acl", "add", "--principal", "User:a", "--operation", "read"),
        ("acl", "add", "--principal", "User:a", "--operation", "fly", "--cluster"),
        ("acl", "remove"),
        ("txn", "abort"),
        ("txn", "abort", "t:0"),
        ("quota", "set", "producer_byte_rate=1"),
        ("quota", "set", "--user", "a", "producer_byte_rate=x"),
        ("reassign", "start", "t:0=a"),
        ("elect",),
        ("feature", "update", "x=y"),
        ("topic", "list", "-X", "acks=all"),
    ],
)
def test_wrong_usage_is_exit_code_2(kstore: Shell, arguments: tuple[str, ...]) -> None:
    assert kstore.text(*arguments, code=2)


def test_a_profile_names_the_cluster(
    kstore: Shell, broker: KstoreBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kstore").mkdir()
    (tmp_path / "kstore" / "profiles.toml").write_text(
        f'[profiles.here]\nbootstrap.servers = "{broker.bootstrap}"\nlinger.ms = 5\n'
        '[profiles.there]\nbootstrap.servers = "localhost:1"\n'
    )
    assert kstore.text("cluster", "describe", "--profile", "here")
    failed = kstore.text(
        "cluster", "describe", "--profile", "there", "-X", "default.api.timeout.ms=500", code=1
    )
    assert "localhost:1" in failed
