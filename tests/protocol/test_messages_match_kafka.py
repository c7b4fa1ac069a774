"""Every declaration against the JSON schemas inside Kafka's own jars: versions, fields, types,
defaults, nullability, tags.

The jars are read as zip files; no Java runs, but only a machine with Java has fetched them. What
kstore adds is listed here by hand, so an extension cannot slip in unseen.
"""

from __future__ import annotations

import json
import re
import uuid
import zipfile
from functools import cache
from typing import Any

import pytest

from kstore.protocol import registry, schema
from kstore.protocol.registry import APIS
from kstore.protocol.schema import Message, Struct
from tests.conformance import kafka_jars
from tests.reference.messages import all_messages

JARS = (
    "kafka-clients",
    "kafka-group-coordinator",
    "kafka-share-coordinator",
    "kafka-transaction-coordinator",
)
ALWAYS = (0, schema.LAST_VERSION)

# Structure -> kstore's own fields in it, with tag and first version.
EXTENSIONS: dict[str, dict[str, tuple[int, str]]] = {
    "ApiVersionsRequest": {"extension_fields": (23202, "3+")},
    "ProduceRequest": {"use_offset": (39100, "9+"), "exact": (39102, "9+")},
    "TopicPartitions": {"least_leader_epochs": (39103, "2+")},
    "InitProducerIdRequest": {"least_producer_id": (39104, "2+")},
    "TopicProduceData": {"partition_count": (25300, "9+")},
    "PartitionProduceData": {
        "current_leader_epoch": (35900, "9+"),
        "partition_epoch": (23200, "9-12"),
    },
    "ListOffsetsPartition": {"partition_epoch": (23200, "6+")},
    "OffsetForLeaderPartition": {
        "partition_epoch": (23200, "4+"),
        "visible_only": (25300, "4+"),
    },
    "DeleteRecordsPartition": {"partition_epoch": (23200, "2+")},
    "AlterShareGroupOffsetsRequestPartition": {"partition_epoch": (23200, "0+")},
    "PositionPartition": {"partition_epoch": (23200, "0+")},
    "OffsetFetchRequestTopic": {"partition_epochs": (23203, "6-7")},
    "OffsetFetchRequestTopics": {"partition_epochs": (23203, "8-9")},
    "PartitionProduceResponse": {"log_end_offset": (39101, "9+")},
    "PartitionData": {"partition_epoch": (23200, "12+")},
    "MetadataResponse": {"max_partition_epoch": (23201, "9+")},
    "MetadataResponseTopic": {"partition_count": (25300, "9+")},
    "CreatePartitionsTopic": {"may_shrink": (25303, "2+")},
    "MetadataResponsePartition": {"partition_epoch": (23200, "9+")},
    "ListOffsetsPartitionResponse": {"partition_epoch": (23200, "6+")},
    "OffsetCommitRequestPartition": {"partition_epoch": (23200, "8+")},
    "TxnOffsetCommitRequestPartition": {"partition_epoch": (23200, "3+")},
    "OffsetFetchResponsePartition": {"partition_epoch": (23200, "6+")},
    "OffsetFetchResponsePartitions": {"partition_epoch": (23200, "8+")},
    "OffsetCommitValue": {"partition_epoch": (23200, "4+")},
    "LeaderAndIsrPartition": {"partition_epoch": (23200, "4+")},
    "LeaderAndIsrTopic": {"partition_count": (25300, "4+"), "retired_from": (25303, "4+")},
    "LeaderAndIsrRequest": {"request_number": (10102, "4+")},
    "LeaderAndIsrPartitionError": {
        "latest_epoch": (10100, "4+"),
        "log_end_offset": (10101, "4+"),
    },
    "StopReplicaTopic": {"topic_id": (23203, "3+")},
    "UpdateMetadataRequest": {"max_partition_epoch": (23201, "6+")},
    "UpdateMetadataTopic": {
        "retired_from": (25303, "6+"),
        "retired_epoch": (25304, "6+"),
        "retired_partition_epoch": (25305, "6+"),
        "retirement_holds": (25306, "6+"),
        "partition_total": (25307, "6+"),
    },
    "UpdateMetadataPartition": {
        "partition_epoch": (23200, "6+"),
        "eligible_leader_replicas": (96600, "6+"),
        "last_known_elr": (96601, "6+"),
    },
    "LeaderEpochForPartitionResult": {"partition_epoch": (23200, "0+")},
    "UpdateMetadataBroker": {"epoch": (23202, "6+")},
    "HeartbeatRequest": {"need_position": (25301, "4+"), "position": (25302, "4+")},
    "HeartbeatResponse": {"need_position": (25301, "4+"), "position": (25302, "4+")},
    "ConsumerGroupHeartbeatRequest": {"need_position": (25301, "0+"), "position": (25302, "0+")},
    "ConsumerGroupHeartbeatResponse": {"need_position": (25301, "0+"), "position": (25302, "0+")},
}
# Messages that Kafka 4.3.1 no longer has: its ZooKeeper era's; and kstore's own.
KSTORE_ONLY = {
    name + suffix
    for name in (
        "LeaderAndIsr",
        "StopReplica",
        "UpdateMetadata",
        "ControlledShutdown",
        "LeaderEpochForPartition",
        "CopyBatches",
        "GroupsBehind",
    )
    for suffix in ("Request", "Response")
}


@cache
def kafka_schemas() -> dict[str, dict[str, Any]]:
    """Message name -> its JSON schema, with the comments taken out."""
    found: dict[str, dict[str, Any]] = {}
    try:
        folder = kafka_jars.fetch_jars()
    except kafka_jars.KafkaUnavailableError as error:
        pytest.skip(str(error))
    for jar in JARS:
        with zipfile.ZipFile(folder / f"{jar}-{kafka_jars.KAFKA_VERSION}.jar") as archive:
            for entry in archive.namelist():
                if entry.startswith("common/message/") and entry.endswith(".json"):
                    text = re.sub(
                        r'(?m)(^|\s)//[^"\n]*$|^\s*//.*$', "", archive.read(entry).decode()
                    )
                    parsed = json.loads(text)
                    found[parsed["name"]] = parsed
    return found


def snake(name: str) -> str:
    """Kafka's name as kstore writes it."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def versions(text: str | None) -> tuple[int, int]:
    """A range of Kafka's schema language, where "none" is a word."""
    return schema.parse_versions("" if text in (None, "none") else text)


def within(text: str | None, bounds: tuple[int, int]) -> tuple[int, int]:
    """The part of a range within bounds; an empty range in one form."""
    low, high = versions(text)
    low, high = max(low, bounds[0]), min(high, bounds[1])
    return (low, high) if low <= high else schema.NO_VERSION


def default_of(entry: dict[str, Any], struct: type[Struct] | None) -> Any:
    """The default that Kafka's generator gives a field."""
    given, kind = entry.get("default"), entry["type"]
    if given == "null" or ("default" in entry and given is None):
        return None
    if kind.startswith("[]"):
        return []
    if struct is not None:
        return struct()
    if kind == "records":
        return None
    fixed: dict[str, Any] = {"uuid": uuid.UUID(int=0), "bytes": b"", "string": given or ""}
    if kind in fixed:
        return fixed[kind]
    if kind == "bool":
        return str(given).lower() == "true"
    return float(given or 0) if kind == "float64" else int(str(given or 0), 0)


def compare_struct(
    cls: type[Struct],
    entries: list[dict[str, Any]],
    bounds: tuple[int, int],
    commons: dict[str, Any],
) -> None:
    """Each field in order, and the structures in fields."""
    ours = [name for name in cls.SPECS if name not in EXTENSIONS.get(cls.__name__, {})]
    assert ours == [snake(entry["name"]) for entry in entries]
    for name, entry in zip(ours, entries, strict=True):
        compare_field(cls, name, entry, bounds, commons)


def compare_field(
    cls: type[Struct],
    name: str,
    entry: dict[str, Any],
    bounds: tuple[int, int],
    commons: dict[str, Any],
) -> None:
    """One field: everything that its declaration says."""
    where = f"{cls.__name__}.{name}"
    spec = cls.SPECS[name]
    kind, element, struct = schema.field_type(cls, name)
    is_array = entry["type"].startswith("[]")
    theirs = entry["type"].removeprefix("[]")
    assert (kind == schema.KIND_ARRAY) == is_array, where
    single = element if is_array else kind
    names = {number: key.lower() for key, number in schema.KINDS.items()}
    assert (struct is not None) == (theirs not in names.values()), where
    if struct is None:
        assert names[single] == theirs, where
    present = entry.get("versions", entry.get("taggedVersions"))
    assert within(spec.versions, bounds) == within(present, bounds), where
    assert within(spec.nullable, bounds) == within(entry.get("nullableVersions"), bounds), where
    assert spec.tag == entry.get("tag", -1), where
    tagged = spec.tagged or (spec.versions if spec.tag >= 0 else "")
    assert within(tagged, bounds) == within(entry.get("taggedVersions"), bounds), where
    assert spec.ignorable == (str(entry.get("ignorable", False)).lower() == "true"), where
    assert spec.flexible == (entry.get("flexibleVersions") != "none"), where
    default = spec.factory() if spec.factory else spec.default
    assert default == default_of(entry, struct), where
    if struct is not None:
        compare_struct(struct, entry.get("fields") or commons[theirs], bounds, commons)


def ours(cls: type[Message]) -> bool:
    """Whether Kafka has no such message."""
    return cls.__name__ in KSTORE_ONLY


@pytest.mark.java
@pytest.mark.parametrize(
    "cls", [c for c in all_messages() if not ours(c)], ids=lambda c: c.__name__
)
def test_a_declaration_says_what_kafkas_schema_says(cls: type[Message]) -> None:
    theirs = kafka_schemas()[cls.__name__]
    assert versions(theirs["validVersions"]) == (cls.MIN_VERSION, cls.MAX_VERSION)
    flexible = versions(theirs["flexibleVersions"])
    assert (flexible[0] if flexible[1] >= 0 else schema.LAST_VERSION) == cls.FLEXIBLE_FROM
    kinds = {"coordinator-key", "coordinator-value"}
    assert (theirs["apiKey"] if theirs["type"] in kinds else -1) == cls.RECORD_TYPE
    assert (theirs["apiKey"] if theirs["type"] in {"request", "response"} else -1) == cls.API_KEY
    commons = {entry["name"]: entry["fields"] for entry in theirs.get("commonStructs", ())}
    compare_struct(cls, theirs["fields"], (cls.MIN_VERSION, cls.MAX_VERSION), commons)


@pytest.mark.java
def test_the_registry_says_what_kafkas_schemas_say() -> None:
    for api in APIS.values():
        for suffix in ("Request", "Response"):
            if api.name + suffix in KSTORE_ONLY:
                continue
            theirs = kafka_schemas()[api.name + suffix]
            assert theirs["apiKey"] == api.key
            assert versions(theirs["validVersions"]) == (api.min_version, api.max_version)
            low, high = versions(theirs["flexibleVersions"])
            assert (low if high >= 0 else registry.NEVER) == api.flexible_from


def test_the_registry_agrees_with_the_declarations() -> None:
    for api in APIS.values():
        for cls in (api.request, api.response):
            assert api.key == cls.API_KEY
            assert (api.min_version, api.max_version) == (cls.MIN_VERSION, cls.MAX_VERSION)
            assert api.flexible_from == cls.FLEXIBLE_FROM


def test_kstores_own_fields_are_the_listed_ones_and_tagged() -> None:
    found: dict[str, dict[str, tuple[int, str]]] = {}

    def visit(cls: type[Struct]) -> None:
        for name, spec in cls.SPECS.items():
            if spec.tag >= 10000:
                found.setdefault(cls.__name__, {})[name] = (spec.tag, spec.versions)
            struct = schema.field_type(cls, name)[2]
            if struct is not None:
                visit(struct)

    for message in all_messages():
        visit(message)
    assert found == {name: EXTENSIONS[name] for name in EXTENSIONS if name in found}
    assert "ProduceRequest" in found
