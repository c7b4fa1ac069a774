"""A valid request of every API, built from its schema: fields get values by their names. The probes
change these requests one field at a time. Comparison is done elsewhere.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from kstore.protocol.registry import APIS
from kstore.protocol.schema import (
    KIND_ARRAY,
    KIND_STRUCT,
    KINDS,
    ZERO_UUID,
    Message,
    Struct,
    field_type,
    parse_versions,
)
from tests.conformance.probes.batches import Flaws, batch
from tests.conformance.probes.data import fill
from tests.conformance.probes.groups import join
from tests.conformance.probes.peer import Peer
from tests.conformance.probes.topics import create
from tests.plain_messages import Ask

# Requests that would stop or reconfigure Kafka's only broker.
NOT_BENT = {
    57: "UpdateFeatures lowers the features that the other probes rely on",
    64: "UnregisterBroker takes Kafka's only broker away",
    80: "AddRaftVoter changes the quorum of Kafka's only node",
    81: "RemoveRaftVoter removes Kafka's only controller",
}


class Unit:
    """One API at one version on one broker: unique names and prepared resources."""

    def __init__(self, peer: Peer, api_key: int, version: int, prefix: str = "pm") -> None:
        self.peer = peer
        self.api_key = api_key
        self.version = version
        self.name = f"{prefix}-{api_key}-v{version}"
        self.number = 0  # number of the request, for names that are used once
        self.topic_id = ZERO_UUID
        self.group = f"{self.name}-g"
        self.member_id = ""
        self.generation_id = 1
        self.producer_id = 4242
        self.producer_epoch = 0

    def of(self, peer: Peer) -> Unit:
        """The same for another broker."""
        return Unit(peer, self.api_key, self.version, self.name.partition("-")[0])

    @property
    def topic(self) -> str:
        """The existing topic: two partitions, with ten records in the first."""
        return self.name

    def owns(self, label: str) -> bool:
        """Whether a row of an answer is about this unit: it has no name or one of the unit's names.
        Other units run at the same time.
        """
        return not label.startswith(("p", "__", "mine-", "others-")) or self.name in label

    @property
    def fresh(self) -> str:
        """A name that no other request uses."""
        return f"{self.name}-{self.number}"


def _joined(unit: Unit) -> None:
    """A stable group with one member."""
    version = unit.peer.version_for(11)
    fields = {"session_timeout_ms": 600_000, "rebalance_timeout_ms": 600_000}
    first: Any = unit.peer.ask(join(unit.group, **fields), version)
    answer: Any = unit.peer.ask(join(unit.group, first.member_id, **fields), version)
    unit.member_id, unit.generation_id = answer.member_id, answer.generation_id
    mine = {"member_id": unit.member_id, "assignment": b"mine"}
    request = Ask.SyncGroup(
        group_id=unit.group, generation_id=unit.generation_id, member_id=unit.member_id,
        protocol_type="consumer", protocol_name="range", assignments=[mine],
    )  # fmt: skip
    unit.peer.ask(request, unit.peer.version_for(14))


def _producer(unit: Unit) -> None:
    """A transactional producer without a transaction."""
    request = Ask.InitProducerId(transactional_id=unit.name, transaction_timeout_ms=60_000)
    answer: Any = unit.peer.ask(request, unit.peer.version_for(22))
    unit.producer_id, unit.producer_epoch = answer.producer_id, answer.producer_epoch


_PREPARED: dict[int, Callable[[Unit], None]] = {
    8: _joined, 12: _joined, 13: _joined, 14: _joined, 15: _joined,
    24: _producer, 25: _producer, 26: _producer, 28: _producer, 65: _producer,
}  # fmt: skip


def prepare(unit: Unit) -> None:
    """Creates the unit's topic with its records, and its group or producer, on the unit's
    broker.
    """
    from tests.conformance.probes.story import settle

    message = create(unit.topic, 2)
    settle(unit.peer, message, unit.peer.ask(message, unit.peer.version_for(19)))
    unit.topic_id = unit.peer.topic_id(unit.topic)
    produce_version = unit.peer.version_for(0)
    for request in fill(unit.topic_id if produce_version >= 13 else unit.topic):
        unit.peer.ask(request, produce_version)
    if unit.api_key in _PREPARED:
        _PREPARED[unit.api_key](unit)


_BY_NAME: dict[str, Callable[[Unit], Any]] = {
    "topic": lambda unit: unit.topic,
    "topic_name": lambda unit: unit.topic,
    "topic_names": lambda unit: unit.fresh,
    "topic_id": lambda unit: unit.topic_id,
    "group_id": lambda unit: unit.group,
    "groups": lambda unit: unit.group,
    "groups_names": lambda unit: unit.fresh,
    "group_ids": lambda unit: unit.group,
    "member_id": lambda unit: unit.member_id,
    "generation_id": lambda unit: unit.generation_id,
    "generation_id_or_member_epoch": lambda unit: unit.generation_id,
    "transactional_id": lambda unit: unit.name,
    "transactional_ids": lambda unit: unit.name,
    "v3_and_below_transactional_id": lambda unit: unit.name,
    "producer_id": lambda unit: unit.producer_id,
    "v3_and_below_producer_id": lambda unit: unit.producer_id,
    "producer_epoch": lambda unit: unit.producer_epoch,
    "v3_and_below_producer_epoch": lambda unit: unit.producer_epoch,
    "records": lambda unit: batch([b"a", b"b"], Flaws()),
    "timeout_ms": lambda unit: 10_000,
}
"""A field's value by its name, in every API that has it; an element of an array likewise."""

_LEADER_EPOCHS = dict.fromkeys(("current_leader_epoch", "last_fetched_epoch"), -1)
_NO_INSTANCE = {"group_instance_id": None, "instance_id": None}
_BY_API: dict[int, dict[str, Any]] = {
    0: {"transactional_id": None, "acks": -1},
    1: {
        "replica_id": -1, "max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1 << 22,
        "session_epoch": -1, "log_start_offset": -1, "partition_max_bytes": 1 << 20,
        "forgotten_topics_data": [], "cluster_id": None, "rack_id": "",
        "high_watermark": (1 << 63) - 1, **_LEADER_EPOCHS,
    },
    2: {"replica_id": -1, "timestamp": -1, **_LEADER_EPOCHS},
    3: {"topic_id": ZERO_UUID, "name": lambda unit: unit.topic},
    8: {**_NO_INSTANCE, "retention_time_ms": -1, "committed_leader_epoch": -1},
    9: {"member_id": None, "member_epoch": -1},
    10: {"key": lambda unit: unit.group, "coordinator_keys": lambda unit: unit.group},
    11: {
        **_NO_INSTANCE, "group_id": lambda unit: unit.fresh, "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000, "member_id": "", "protocol_type": "consumer",
        "protocols.name": "range",
    },
    12: {**_NO_INSTANCE},
    13: {**_NO_INSTANCE},
    14: {**_NO_INSTANCE, "protocol_type": "consumer", "protocol_name": "range"},
    16: {"states_filter": "Stable", "types_filter": "classic"},
    18: {"client_software_name": "probe", "client_software_version": "1.0"},
    19: {
        "topics.name": lambda unit: unit.fresh, "num_partitions": -1, "replication_factor": -1,
        "partition_index": 0, "broker_ids": 1, "configs.name": "retention.ms",
        "configs.value": "600000",
    },
    20: {"topics.name": lambda unit: unit.fresh, "topic_id": ZERO_UUID},
    21: {"offset": 3},
    22: {
        "transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": -1,
        "producer_epoch": -1,
    },
    23: {"replica_id": -1, **_LEADER_EPOCHS},
    28: {**_NO_INSTANCE, "generation_id": -1, "member_id": "", "committed_leader_epoch": -1},
    29: {
        "resource_type_filter": 2, "resource_name_filter": lambda unit: unit.topic,
        "pattern_type_filter": 3, "principal_filter": "User:a", "host_filter": "*",
        "operation": 3, "permission_type": 3,
    },
    30: {
        "resource_type": 2, "resource_name": lambda unit: unit.topic, "resource_pattern_type": 3,
        "principal": "User:a", "host": "*", "operation": 3, "permission_type": 3,
    },
    32: {
        "resource_type": 2, "resource_name": lambda unit: unit.topic,
        "configuration_keys": "retention.ms",
    },
    33: {
        "resource_type": 2, "resource_name": lambda unit: unit.topic,
        "configs.name": "retention.ms", "configs.value": "600000",
    },
    34: {"path": "/absent"},
    37: {"count": 3, "assignments": None, "validate_only": True},
    38: {
        "owner_principal_type": "", "owner_principal_name": "", "principal_type": "User",
        "principal_name": "x", "max_lifetime_ms": -1,
    },
    39: {"hmac": b"x", "renew_period_ms": -1},
    40: {"hmac": b"x", "expiry_time_period_ms": -1},
    41: {"principal_type": "User", "principal_name": "x"},
    43: {"timeout_ms": 10_000},
    44: {
        "resource_type": 2, "resource_name": lambda unit: unit.topic,
        "configs.name": "retention.ms", "configs.value": "600000",
    },
    45: {"replicas": 1},
    48: {"entity_type": "client-id", "match_type": 0, "match": lambda unit: unit.name},
    49: {
        "entity_type": "client-id", "entity_name": lambda unit: unit.name,
        "key": "producer_byte_rate", "value": 1e9, "validate_only": True,
    },
    50: {"users.name": lambda unit: unit.name},
    51: {
        "deletions": [], "name": lambda unit: unit.name, "mechanism": 1, "iterations": 4096,
        "salt": b"0123456789abcdef", "salted_password": b"0123456789abcdef" * 2,
    },
    55: {"topic_name": "__cluster_metadata"},
    60: {"endpoint_type": 1},
    66: {
        "state_filters": "Ongoing", "producer_id_filters": 4242, "duration_filter": -1,
        "transactional_id_pattern": lambda unit: unit.name,
    },
    68: {
        **_NO_INSTANCE, "group_id": lambda unit: unit.fresh, "member_id": "member",
        "rack_id": None, "rebalance_timeout_ms": 30_000, "server_assignor": None,
        "subscribed_topic_names": lambda unit: unit.topic, "subscribed_topic_regex": None,
        "topic_partitions": [],
    },
    71: {"client_instance_id": uuid.UUID(int=7)},
    72: {"client_instance_id": uuid.UUID(int=7)},
    74: {"resource_types": 2},
    75: {"topics.name": lambda unit: unit.topic, "response_partition_limit": 2000, "cursor": None},
    88: {
        **_NO_INSTANCE, "group_id": lambda unit: unit.fresh, "member_id": "member",
        "rack_id": None, "rebalance_timeout_ms": 30_000, "active_tasks": [], "standby_tasks": [],
        "warmup_tasks": [], "process_id": "process", "task_offsets": None,
        "task_end_offsets": None, "user_endpoint": None, "subtopologies.subtopology_id": "0",
        "source_topics": lambda unit: unit.topic, "source_topic_regex": [],
        "state_changelog_topics": [], "repartition_sink_topics": [],
        "repartition_source_topics": [], "copartition_groups": [],
    },
}  # fmt: skip
"""Where an API wants another value than its field's name gives; "parent.name" is more exact."""

_BY_KIND: dict[str, Any] = {
    "Bool": False, "String": "x", "Bytes": b"", "Uuid": ZERO_UUID, "Float64": 0.0,
    "Records": b"",
}  # fmt: skip


class Shape:
    """The values of a request: one element in each array, and the values of the tables."""

    def elements(self, make: Callable[[], Any]) -> list[Any]:
        """The elements of an array, newly built."""
        return [make()]

    def leaf(self, name: str, value: Any) -> Any:
        """The value from the tables for a field."""
        return value


ONE_OF_EACH = Shape()


def seed(unit: Unit, shape: Shape = ONE_OF_EACH) -> Message:
    """The valid request of the unit, or one with another structure."""
    cls = APIS[unit.api_key].request
    message = _filled(cls, unit, "", shape)
    assert isinstance(message, Message)
    return message


def _filled(cls: type[Struct], unit: Unit, parent: str, shape: Shape) -> Struct:
    values: dict[str, Any] = {}
    for name, spec in cls.SPECS.items():
        low, high = parse_versions(spec.versions)
        if low <= unit.version <= high and spec.tag < 10_000 and name != "unknown_tags":
            values[name] = _field_value(cls, name, unit, parent, shape)
    return cls(**values)


def _field_value(cls: type[Struct], name: str, unit: Unit, parent: str, shape: Shape) -> Any:
    kind, element, struct = field_type(cls, name)
    given = _given(cls, name, unit, parent)
    if kind == KIND_ARRAY:
        if given is None or isinstance(given, list):
            return given
        if element == KIND_STRUCT:
            assert struct is not None
            return shape.elements(lambda: _filled(struct, unit, name, shape))
        value = _plain(element) if given is _NOTHING else given
        return shape.elements(lambda: shape.leaf(name, value))
    if kind == KIND_STRUCT:
        if given is None:
            return None
        assert struct is not None
        return _filled(struct, unit, name, shape)
    return shape.leaf(name, _plain(kind) if given is _NOTHING else given)


_NOTHING = object()
_KIND_NAMES = {number: name for name, number in KINDS.items()}


def _plain(kind: int) -> Any:
    return _BY_KIND.get(_KIND_NAMES[kind], 0)


def _given(cls: type[Struct], name: str, unit: Unit, parent: str) -> Any:
    table = _BY_API.get(unit.api_key, {})
    for key in (f"{parent}.{name}", name):
        if key in table:
            value = table[key]
            return value(unit) if callable(value) else value
    if name == "name" and "topic" in cls.__name__.lower():
        return unit.topic
    return _BY_NAME[name](unit) if name in _BY_NAME else _NOTHING
