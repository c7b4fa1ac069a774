"""Where topics, configs and brokers lie in the coordination store, and how their nodes are written.

Kafka's ZooKeeper-era layout and JSON, so that a reader of either finds its way. Reads and writes
through a Store only.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID, uuid4

from kstore.broker.coordination.contraction_nodes import CONTRACTIONS
from kstore.broker.coordination.partition_nodes import (
    TOPICS,
    create_ops,
    multi_with_epochs,
    prepare_epochs,
    read_node,
    read_state,
    state_node,
)
from kstore.broker.coordination.store import Create, Delete, NoNodeError, Op, Set
from kstore.broker.state.metadata.image import BrokerImage, PartitionImage, TopicImage

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store

__all__ = [
    "BROKER_FEATURES",
    "CONTRACTIONS_FEATURE",
    "ELR_FEATURE",
    "TOPICS",
    "TopicCount",
    "add_partitions",
    "announce_failed_log_dir",
    "begin_expansion",
    "broker_ids",
    "broker_node",
    "bump_ops",
    "cluster_id",
    "cluster_id_node",
    "config_node",
    "create_topic",
    "delete_topic",
    "find_topics",
    "finish_deletion",
    "prepare",
    "raise_leader_epochs",
    "read_cluster_id",
    "read_configs",
    "read_count",
    "read_deletions",
    "read_expansions",
    "read_made",
    "read_topic",
    "read_topic_configs",
    "read_topics",
    "register_broker",
    "set_configs",
    "take_failed_log_dirs",
    "topic_node",
    "write_configs",
]

TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
BROKER_IDS = "/brokers/ids"
DELETIONS = "/admin/delete_topics"
LOG_DIR_EVENTS = "/log_dir_event_notification"
CLUSTER_ID = "/cluster/id"
ELR_FEATURE = "eligible.leader.replicas.version"
"""Brokers that know partitions with eligible leader replicas say so."""
CONTRACTIONS_FEATURE = "kstore.contractions"
"""Brokers that know topics which shrink (KIP-253) say so."""
BROKER_FEATURES = {
    ELR_FEATURE: {"min_version": 0, "max_version": 1},
    CONTRACTIONS_FEATURE: {"min_version": 1, "max_version": 1},
}
"""What a broker of this version says of itself."""
CONTROLLER_EPOCH = 1
MAX_NAME = 400  # bytes of a path's last part


def prepare(store: Store) -> None:
    """Make the folders that every later write takes for granted, and give partitions of a store
    that knew no partition epochs theirs.
    """
    folders = (TOPICS, TOPIC_CONFIGS, BROKER_CONFIGS, BROKER_IDS, DELETIONS, "/cluster")
    for path in (*folders, LOG_DIR_EVENTS):
        store.ensure(path)
    prepare_epochs(store)


def cluster_id(store: Store) -> str:
    """The cluster's id, made by the first broker."""
    try:
        data, _ = store.get(CLUSTER_ID)
        return read_cluster_id(data)
    except NoNodeError:
        made = encode_id(uuid4())
        store.create(CLUSTER_ID, _json({"version": "1", "id": made}))
        return made


def read_cluster_id(data: bytes) -> str:
    """The id that `/cluster/id` says, without what may be behind it."""
    return str(json.loads(data)["id"]).partition(" ")[0]


def cluster_id_node(cluster: str, needs: str) -> bytes:
    """The id, and behind it what the cluster needs ("": nothing). Version 0.1.0 takes it all for
    the id: none of its log dirs belongs to that cluster, and it does not start.
    """
    return _json({"version": "1", "id": f"{cluster} ({needs})" if needs else cluster})


def register_broker(
    store: Store, broker: BrokerImage, timestamp_ms: int, protocols: Mapping[str, str] | None = None
) -> None:
    """Say that this broker is alive, for as long as the session lasts. ``protocols``: by listener,
    those that are not PLAINTEXT.
    """
    node = broker_node(broker, timestamp_ms, protocols)
    store.create(f"{BROKER_IDS}/{broker.node_id}", node, ephemeral=True)


def broker_node(
    broker: BrokerImage, timestamp_ms: int, protocols: Mapping[str, str] | None = None
) -> bytes:
    """What a broker says of itself, as Kafka's brokers did."""
    first = broker.endpoints[0]
    names = [end.listener for end in broker.endpoints]
    node = {
        "listener_security_protocol_map": dict.fromkeys(names, "PLAINTEXT") | dict(protocols or {}),
        "endpoints": [f"{end.listener}://{end.host}:{end.port}" for end in broker.endpoints],
        "jmx_port": -1,
        "port": first.port,
        "host": first.host,
        "version": 5,
        "timestamp": str(timestamp_ms),
        "rack": broker.rack,
        "features": BROKER_FEATURES,
    }
    return _json(node)


def broker_ids(store: Store) -> list[int]:
    """The brokers that are alive."""
    return sorted(int(name) for name in store.children(BROKER_IDS))


def read_topics(store: Store) -> list[TopicImage]:
    """Every topic in the store."""
    return [read_topic(store, name) for name in store.children(TOPICS)]


def read_topic(store: Store, name: str) -> TopicImage:
    """One topic with the partitions that have their nodes: an expansion under way has assigned
    more (`read_expansions`). NoNodeError.
    """
    path = f"{TOPICS}/{name}"
    node = json.loads(store.get(path)[0])
    partitions: list[PartitionImage] = []
    for index in range(len(node["partitions"])):
        own = read_node(store, name, index)
        if own is None:
            break
        data, version = store.get(f"{path}/partitions/{index}/state")
        key = str(index)
        partitions.append(
            read_state(data, version, own)._replace(
                replicas=tuple(node["partitions"][key]),
                adding=tuple(node.get("adding_replicas", {}).get(key, ())),
                removing=tuple(node.get("removing_replicas", {}).get(key, ())),
            )
        )
    configs = read_topic_configs(store, name)
    return TopicImage(name, decode_id(node["topic_id"]), tuple(partitions), configs)


def read_topic_configs(store: Store, name: str) -> dict[str, str]:
    """What is set for a topic; nothing where it has no node."""
    try:
        data, _ = store.get(f"{TOPIC_CONFIGS}/{name}")
    except NoNodeError:
        return {}
    return dict(json.loads(data)["config"])


def read_expansions(store: Store) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Expansions that began and did not end: topic to the replicas of each partition that is
    assigned and has no node yet, in order.
    """
    found = {}
    for name in store.children(TOPICS):
        assigned = json.loads(store.get(f"{TOPICS}/{name}")[0])["partitions"]
        have = len(store.children(f"{TOPICS}/{name}/partitions"))
        if have < len(assigned):
            new = range(have, len(assigned))
            found[name] = tuple(tuple(assigned[str(index)]) for index in new)
    return found


class TopicCount(NamedTuple):
    """How many partitions a topic has."""

    topic_id: UUID
    partitions: int


def read_count(store: Store, name: str) -> TopicCount | None:
    """A topic's count; None while it is growing. A topic that there is not has none, and no id."""
    made, assigned = _read_counts(store, name)
    return made if made.partitions == assigned else None


def read_made(store: Store, name: str) -> TopicCount:
    """How many partitions a topic has by now, though it may be growing; none where there is no
    such topic.
    """
    return _read_counts(store, name)[0]


def _read_counts(store: Store, name: str) -> tuple[TopicCount, int]:
    """The partitions that have their nodes, and how many are assigned."""
    try:
        node = json.loads(store.get(f"{TOPICS}/{name}")[0])
        have = len(store.children(f"{TOPICS}/{name}/partitions"))
    except NoNodeError:
        return TopicCount(UUID(int=0), 0), 0
    return TopicCount(decode_id(node["topic_id"]), have), len(node["partitions"])


def find_topics(store: Store, ids: Collection[UUID]) -> dict[UUID, str]:
    """The names of the topics with these ids, of those that exist. Reads every topic."""
    names = store.children(TOPICS)
    nodes = store.read_many([f"{TOPICS}/{name}" for name in names])
    found = {
        decode_id(json.loads(node[0])["topic_id"]): name
        for name, node in zip(names, nodes, strict=True)
        if node is not None
    }
    return {topic_id: found[topic_id] for topic_id in ids if topic_id in found}


def create_topic(store: Store, topic: TopicImage) -> TopicImage:
    """Write a new topic with its partitions and configs, all or nothing; NodeExistsError. Returns
    it with the partition epochs that it got.
    """
    path = f"{TOPICS}/{topic.name}"
    config_path = f"{TOPIC_CONFIGS}/{topic.name}"
    node = config_node(topic.configs)
    made = topic

    def ops_from(first_epoch: int) -> list[Op]:
        nonlocal made
        made = _with_epochs(topic, 0, first_epoch)
        ops: list[Op] = [Create(path, topic_node(topic)), Create(f"{path}/partitions")]
        for index, partition in enumerate(made.partitions):
            ops += create_ops(f"{path}/partitions/{index}", partition, CONTROLLER_EPOCH)
        exists = store.exists(config_path)
        return [*ops, Set(config_path, node) if exists else Create(config_path, node)]

    multi_with_epochs(store, len(topic.partitions), ops_from)
    return made


def begin_expansion(store: Store, topic: TopicImage, added: Sequence[Sequence[int]]) -> TopicImage:
    """Assign replicas to new partitions, and bump the leader epochs of those that are there
    (KIP-253), in one multi. BadVersionError where a partition's state has changed meanwhile.

    The leaders have to know the new count and epochs before `add_partitions` makes the new
    partitions; whoever finds the expansion unfinished (`read_expansions`) begins it once more.
    """
    ops, bumped = bump_ops(topic)
    store.multi([Set(f"{TOPICS}/{topic.name}", topic_node(topic, added)), *ops])
    return bumped


def bump_ops(topic: TopicImage, least: int = 0) -> tuple[list[Op], TopicImage]:
    """Bump the leader epochs of a topic's partitions, to ``least`` if that is more; and the topic
    with these.
    """
    ops: list[Op] = []
    bumped = []
    for index, known in enumerate(topic.partitions):
        version = known.state_version
        epoch = max(known.leader_epoch + 1, least)
        new = known._replace(leader_epoch=epoch, state_version=version + 1)
        state = f"{TOPICS}/{topic.name}/partitions/{index}/state"
        ops.append(Set(state, state_node(new, CONTROLLER_EPOCH), version))
        bumped.append(new)
    return ops, topic._replace(partitions=tuple(bumped))


def raise_leader_epochs(store: Store, topic: TopicImage, least: Mapping[int, int]) -> TopicImage:
    """Give partitions leader epochs that are at least so large, in one multi. BadVersionError where
    a partition's state has changed meanwhile.
    """
    partitions = list(topic.partitions)
    ops: list[Op] = []
    for index, epoch in least.items():
        known = partitions[index]
        if known.leader_epoch < epoch:
            version = known.state_version
            new = known._replace(leader_epoch=epoch, state_version=version + 1)
            state = f"{TOPICS}/{topic.name}/partitions/{index}/state"
            ops.append(Set(state, state_node(new, CONTROLLER_EPOCH), version))
            partitions[index] = new
    if ops:
        store.multi(ops)
    return topic._replace(partitions=tuple(partitions))


def add_partitions(store: Store, topic: TopicImage, first: int) -> TopicImage:
    """Write the partitions from index first on of a topic that has grown; returns it with their
    partition epochs, and the leader epochs that the others had before `begin_expansion`.
    """
    path = f"{TOPICS}/{topic.name}"
    priors = tuple((i, topic.partitions[i].leader_epoch - 1) for i in range(first))
    grown = topic

    def ops_from(first_epoch: int) -> list[Op]:
        nonlocal grown
        grown = _with_epochs(topic, first, first_epoch, priors)
        ops: list[Op] = [Set(path, topic_node(topic))]
        for index in range(first, len(topic.partitions)):
            folder = f"{path}/partitions/{index}"
            ops += create_ops(folder, grown.partitions[index], CONTROLLER_EPOCH)
        return ops

    multi_with_epochs(store, len(topic.partitions) - first, ops_from)
    return grown


def delete_topic(store: Store, topic: TopicImage) -> int:
    """Remove a topic with its partitions and configs, all or nothing, and note that its logs are
    to be deleted. Returns the partition epoch that stands for the deletion.
    """
    path = f"{TOPICS}/{topic.name}"
    mark = f"{DELETIONS}/{topic.name}"
    node = _json({"version": 1, "topic_id": encode_id(topic.topic_id)})

    def ops_from(_: int) -> list[Op]:
        ops: list[Op] = []
        if store.exists(f"{CONTRACTIONS}/{topic.name}"):
            ops.append(Delete(f"{CONTRACTIONS}/{topic.name}"))
        for index in store.children(f"{path}/partitions"):  # also those that have retired
            ops += [
                Delete(f"{path}/partitions/{index}/state"),
                Delete(f"{path}/partitions/{index}"),
            ]
        ops += [Delete(f"{path}/partitions"), Delete(path)]
        if store.exists(f"{TOPIC_CONFIGS}/{topic.name}"):
            ops.append(Delete(f"{TOPIC_CONFIGS}/{topic.name}"))
        return [*ops, Set(mark, node) if store.exists(mark) else Create(mark, node)]

    return multi_with_epochs(store, 1, ops_from)


def read_deletions(store: Store) -> dict[str, UUID]:
    """Topics that are deleted, whose logs may still be there: name to topic id."""
    return {
        name: decode_id(json.loads(store.get(f"{DELETIONS}/{name}")[0])["topic_id"])
        for name in store.children(DELETIONS)
    }


def finish_deletion(store: Store, name: str) -> None:
    """The logs of a deleted topic are gone."""
    store.delete(f"{DELETIONS}/{name}")


def announce_failed_log_dir(store: Store, node_id: int) -> None:
    """Tell the controller that a log dir of a broker has failed."""
    node = _json({"version": 1, "broker": node_id, "event": 1})
    store.create(f"{LOG_DIR_EVENTS}/log_dir_event_", node, sequential=True)


def take_failed_log_dirs(store: Store) -> set[int]:
    """The brokers that have announced that a log dir has failed; they are told no more."""
    brokers = set()
    for name in store.children(LOG_DIR_EVENTS):
        path = f"{LOG_DIR_EVENTS}/{name}"
        brokers.add(int(json.loads(store.get(path)[0])["broker"]))
        store.delete(path)
    return brokers


def set_configs(store: Store, topic: str, configs: Mapping[str, str]) -> None:
    """Replace what is set for a topic."""
    store.set(f"{TOPIC_CONFIGS}/{topic}", config_node(configs))


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


def _with_epochs(
    topic: TopicImage,
    first: int,
    first_epoch: int,
    priors: tuple[tuple[int, int], ...] = (),
) -> TopicImage:
    """The topic with consecutive epochs on its partitions from index first on."""
    numbered = (
        partition._replace(
            partition_epoch=first_epoch + place, prior_leader_epochs=priors, state_version=0
        )
        for place, partition in enumerate(topic.partitions[first:])
    )
    return topic._replace(partitions=(*topic.partitions[:first], *numbered))


def topic_node(topic: TopicImage, added: Sequence[Sequence[int]] = ()) -> bytes:
    """A topic's id and replicas as Kafka writes them, with those of partitions to be added."""
    parts = list(enumerate(topic.partitions))
    assigned = {str(i): list(p.replicas) for i, p in parts}
    assigned |= {str(len(parts) + i): list(replicas) for i, replicas in enumerate(added)}
    return _json(
        {
            "version": 3,
            "topic_id": encode_id(topic.topic_id),
            "partitions": assigned,
            "adding_replicas": {str(i): list(p.adding) for i, p in parts if p.adding},
            "removing_replicas": {str(i): list(p.removing) for i, p in parts if p.removing},
        }
    )


def config_node(configs: Mapping[str, str]) -> bytes:
    """What is set for one thing, as Kafka writes it."""
    return _json({"version": 1, "config": dict(configs)})


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
