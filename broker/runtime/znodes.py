"""Where topics, configs and brokers lie in the coordination store, and how their nodes are written.

Kafka's ZooKeeper-era layout and JSON, so that a reader of either finds its way. Reads and writes
through a Store only.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from kstore.broker.coordination.store import Create, Delete, NoNodeError, Op, Set
from kstore.broker.state.image import BrokerImage, PartitionImage, TopicImage

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store

__all__ = [
    "add_partitions",
    "broker_ids",
    "cluster_id",
    "create_topic",
    "delete_topic",
    "finish_deletion",
    "prepare",
    "read_configs",
    "read_deletions",
    "read_topics",
    "register_broker",
    "set_configs",
    "write_configs",
]

TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
BROKER_IDS = "/brokers/ids"
DELETIONS = "/admin/delete_topics"
CLUSTER_ID = "/cluster/id"
CONTROLLER_EPOCH = 1
MAX_NAME = 400  # bytes of a path's last part


def prepare(store: Store) -> None:
    """Make the folders that every later write takes for granted."""
    for path in (TOPICS, TOPIC_CONFIGS, BROKER_CONFIGS, BROKER_IDS, DELETIONS, "/cluster"):
        store.ensure(path)


def cluster_id(store: Store) -> str:
    """The cluster's id, made by the first broker."""
    try:
        data, _ = store.get(CLUSTER_ID)
        return str(json.loads(data)["id"])
    except NoNodeError:
        made = encode_id(uuid4())
        store.create(CLUSTER_ID, _json({"version": "1", "id": made}))
        return made


def register_broker(store: Store, broker: BrokerImage, timestamp_ms: int) -> None:
    """Say that this broker is alive, for as long as the session lasts."""
    first = broker.endpoints[0]
    node = {
        "listener_security_protocol_map": {end.listener: "PLAINTEXT" for end in broker.endpoints},
        "endpoints": [f"{end.listener}://{end.host}:{end.port}" for end in broker.endpoints],
        "jmx_port": -1,
        "port": first.port,
        "host": first.host,
        "version": 5,
        "timestamp": str(timestamp_ms),
        "rack": broker.rack,
    }
    store.create(f"{BROKER_IDS}/{broker.node_id}", _json(node), ephemeral=True)


def broker_ids(store: Store) -> list[int]:
    """The brokers that are alive."""
    return sorted(int(name) for name in store.children(BROKER_IDS))


def read_topics(store: Store) -> list[TopicImage]:
    """Every topic in the store."""
    return [_read_topic(store, name) for name in store.children(TOPICS)]


def create_topic(store: Store, topic: TopicImage) -> None:
    """Write a new topic with its partitions and configs, all or nothing; NodeExistsError."""
    path = f"{TOPICS}/{topic.name}"
    ops: list[Op] = [Create(path, _topic_node(topic)), Create(f"{path}/partitions")]
    for index, partition in enumerate(topic.partitions):
        ops += _create_partition(path, index, partition)
    config_path = f"{TOPIC_CONFIGS}/{topic.name}"
    node = _config_node(topic.configs)
    ops.append(Set(config_path, node) if store.exists(config_path) else Create(config_path, node))
    store.multi(ops)


def add_partitions(store: Store, topic: TopicImage, first: int) -> None:
    """Write the partitions from index first on of a topic that has grown."""
    path = f"{TOPICS}/{topic.name}"
    ops: list[Op] = [Set(path, _topic_node(topic))]
    for index in range(first, len(topic.partitions)):
        ops += _create_partition(path, index, topic.partitions[index])
    store.multi(ops)


def delete_topic(store: Store, topic: TopicImage) -> None:
    """Remove a topic with its partitions and configs, all or nothing, and note that its logs are
    to be deleted.
    """
    path = f"{TOPICS}/{topic.name}"
    ops: list[Op] = []
    for index in range(len(topic.partitions)):
        ops += [
            Delete(f"{path}/partitions/{index}/state"),
            Delete(f"{path}/partitions/{index}"),
        ]
    ops += [Delete(f"{path}/partitions"), Delete(path)]
    if store.exists(f"{TOPIC_CONFIGS}/{topic.name}"):
        ops.append(Delete(f"{TOPIC_CONFIGS}/{topic.name}"))
    mark = f"{DELETIONS}/{topic.name}"
    node = _json({"version": 1, "topic_id": encode_id(topic.topic_id)})
    ops.append(Set(mark, node) if store.exists(mark) else Create(mark, node))
    store.multi(ops)


def read_deletions(store: Store) -> dict[str, UUID]:
    """Topics that are deleted, whose logs may still be there: name to topic id."""
    return {
        name: decode_id(json.loads(store.get(f"{DELETIONS}/{name}")[0])["topic_id"])
        for name in store.children(DELETIONS)
    }


def finish_deletion(store: Store, name: str) -> None:
    """The logs of a deleted topic are gone."""
    store.delete(f"{DELETIONS}/{name}")


def set_configs(store: Store, topic: str, configs: Mapping[str, str]) -> None:
    """Replace what is set for a topic."""
    store.set(f"{TOPIC_CONFIGS}/{topic}", _config_node(configs))


def read_configs(store: Store, kind: str) -> dict[str, dict[str, str]]:
    """What is set below ``/config/<kind>``, by name; empty where nothing ever was."""
    folder = f"/config/{kind}"
    try:
        nodes = store.children(folder)
    except NoNodeError:
        return {}
    found = {}
    for node in nodes:
        written = json.loads(store.get(f"{folder}/{node}")[0])
        found[written.get("name") or _unquoted(node)] = written["config"]
    return found


def write_configs(store: Store, kind: str, name: str, configs: Mapping[str, str]) -> None:
    """Replace what is set below ``/config/<kind>`` under a name; a node without settings goes."""
    path = f"/config/{kind}/{_quoted(name)}"
    exists = store.exists(path)
    if configs:
        store.ensure(f"/config/{kind}")
        node = {"version": 1, "config": dict(configs)}
        if "/#" in path:
            node["name"] = name
        store.multi([Set(path, _json(node)) if exists else Create(path, _json(node))])
    elif exists:
        store.delete(path)


def _quoted(name: str) -> str:
    """A name as a path's last part; Kafka quotes the same way, and keeps <default>.

    A name too long for a path is there by its hash, behind a #, and stands in the node.
    """
    if (name.isascii() and name.isalnum() and len(name) <= MAX_NAME) or name == "<default>":
        return name
    from hashlib import sha256
    from urllib.parse import quote

    quoted = quote(name, safe="")
    if name in {".", ".."}:
        quoted = quoted.replace(".", "%2E")
    return quoted if len(quoted) <= MAX_NAME else f"#{sha256(name.encode()).hexdigest()}"


def _unquoted(node: str) -> str:
    if "%" not in node:
        return node
    from urllib.parse import unquote

    return unquote(node)


def encode_id(value: UUID) -> str:
    """A topic's or cluster's id as Kafka writes it: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_id(text: str) -> UUID:
    """The id that `encode_id` wrote."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def _read_topic(store: Store, name: str) -> TopicImage:
    path = f"{TOPICS}/{name}"
    node = json.loads(store.get(path)[0])
    partitions: list[PartitionImage] = []
    for index in range(len(node["partitions"])):
        replicas = tuple(node["partitions"][str(index)])
        state = json.loads(store.get(f"{path}/partitions/{index}/state")[0])
        partitions.append(
            PartitionImage(state["leader"], state["leader_epoch"], replicas, tuple(state["isr"]))
        )
    try:
        configs = json.loads(store.get(f"{TOPIC_CONFIGS}/{name}")[0])["config"]
    except NoNodeError:
        configs = {}
    return TopicImage(name, decode_id(node["topic_id"]), tuple(partitions), configs)


def _create_partition(path: str, index: int, partition: PartitionImage) -> list[Op]:
    state = {
        "controller_epoch": CONTROLLER_EPOCH,
        "leader": partition.leader,
        "version": 1,
        "leader_epoch": partition.leader_epoch,
        "isr": list(partition.isr),
    }
    folder = f"{path}/partitions/{index}"
    return [Create(folder), Create(f"{folder}/state", _json(state))]


def _topic_node(topic: TopicImage) -> bytes:
    return _json(
        {
            "version": 3,
            "topic_id": encode_id(topic.topic_id),
            "partitions": {str(i): list(p.replicas) for i, p in enumerate(topic.partitions)},
            "adding_replicas": {},
            "removing_replicas": {},
        }
    )


def _config_node(configs: Mapping[str, str]) -> bytes:
    return _json({"version": 1, "config": dict(configs)})


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
