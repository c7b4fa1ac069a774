"""Layout and format of the nodes of topics and brokers in the coordination store; those of configs
are in config_nodes.py.

They are those of Kafka with ZooKeeper. All reads and writes go through a Store.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID, uuid4

from kstore.broker.coordination.config_nodes import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    config_node,
    read_topic_configs,
)
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
    "create_topic",
    "delete_topic",
    "find_topics",
    "finish_deletion",
    "prepare",
    "raise_leader_epochs",
    "read_cluster_id",
    "read_count",
    "read_deletions",
    "read_expansions",
    "read_made",
    "read_topic",
    "read_topics",
    "register_broker",
    "take_failed_log_dirs",
    "topic_node",
]

BROKER_IDS = "/brokers/ids"
DELETIONS = "/admin/delete_topics"
LOG_DIR_EVENTS = "/log_dir_event_notification"
CLUSTER_ID = "/cluster/id"
ELR_FEATURE = "eligible.leader.replicas.version"
"""The feature of brokers that support eligible leader replicas."""
CONTRACTIONS_FEATURE = "kstore.contractions"
"""The feature of brokers that support contractions (KIP-253)."""
BROKER_FEATURES = {
    ELR_FEATURE: {"min_version": 0, "max_version": 1},
    CONTRACTIONS_FEATURE: {"min_version": 1, "max_version": 1},
}
"""The features that a broker of this version registers."""
CONTROLLER_EPOCH = 1


def prepare(store: Store) -> None:
    """Create the folders that later writes need, and assign missing partition epochs."""
    folders = (TOPICS, TOPIC_CONFIGS, BROKER_CONFIGS, BROKER_IDS, DELETIONS, "/cluster")
    for path in (*folders, LOG_DIR_EVENTS):
        store.ensure(path)
    prepare_epochs(store)


def cluster_id(store: Store) -> str:
    """The cluster's id, created by the first broker."""
    try:
        data, _ = store.get(CLUSTER_ID)
        return read_cluster_id(data)
    except NoNodeError:
        made = encode_id(uuid4())
        store.create(CLUSTER_ID, _json({"version": "1", "id": made}))
        return made


def read_cluster_id(data: bytes) -> str:
    """The id in `/cluster/id`, without the features after it."""
    return str(json.loads(data)["id"]).partition(" ")[0]


def cluster_id_node(cluster: str, needs: str) -> bytes:
    """The id, followed by the features that the cluster needs ("": none). kstore 0.1.0 reads all of
    it as the id, so its log dirs belong to another cluster and it does not start.
    """
    return _json({"version": "1", "id": f"{cluster} ({needs})" if needs else cluster})


def register_broker(
    store: Store, broker: BrokerImage, timestamp_ms: int, protocols: Mapping[str, str] | None = None
) -> None:
    """Register this broker as alive for the duration of the session. ``protocols``: listener to
    security protocol, for those that are not PLAINTEXT.
    """
    node = broker_node(broker, timestamp_ms, protocols)
    store.create(f"{BROKER_IDS}/{broker.node_id}", node, ephemeral=True)


def broker_node(
    broker: BrokerImage, timestamp_ms: int, protocols: Mapping[str, str] | None = None
) -> bytes:
    """A broker's registration, in Kafka's format."""
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
    """The ids of the live brokers."""
    return sorted(int(name) for name in store.children(BROKER_IDS))


def read_topics(store: Store) -> list[TopicImage]:
    """Every topic in the store."""
    return [read_topic(store, name) for name in store.children(TOPICS)]


def read_topic(store: Store, name: str) -> TopicImage:
    """A topic with the partitions that have nodes. During an expansion more are assigned
    (`read_expansions`). Raises NoNodeError.
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


def read_expansions(store: Store) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Unfinished expansions: topic to the replicas of each partition, in order, that is assigned
    and has no node yet.
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
    """A topic's partition count; None during an expansion. For a topic that does not exist, the
    count and the id are zero.
    """
    made, assigned = _read_counts(store, name)
    return made if made.partitions == assigned else None


def read_made(store: Store, name: str) -> TopicCount:
    """The current number of partitions of a topic, also during an expansion. 0 if it does not
    exist.
    """
    return _read_counts(store, name)[0]


def _read_counts(store: Store, name: str) -> tuple[TopicCount, int]:
    """The partitions that have nodes, and how many are assigned."""
    try:
        node = json.loads(store.get(f"{TOPICS}/{name}")[0])
        have = len(store.children(f"{TOPICS}/{name}/partitions"))
    except NoNodeError:
        return TopicCount(UUID(int=0), 0), 0
    return TopicCount(decode_id(node["topic_id"]), have), len(node["partitions"])


def find_topics(store: Store, ids: Collection[UUID]) -> dict[UUID, str]:
    """The names of the existing topics with these ids. Reads all topics."""
    names = store.children(TOPICS)
    nodes = store.read_many([f"{TOPICS}/{name}" for name in names])
    found = {
        decode_id(json.loads(node[0])["topic_id"]): name
        for name, node in zip(names, nodes, strict=True)
        if node is not None
    }
    return {topic_id: found[topic_id] for topic_id in ids if topic_id in found}


def create_topic(store: Store, topic: TopicImage) -> TopicImage:
    """Write a new topic with its partitions and settings, all or nothing. Returns it with its
    partition epochs. Raises NodeExistsError.
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
    """Assign replicas to new partitions, and increase the leader epochs of the existing ones
    (KIP-253), in one multi. Raises BadVersionError if a partition's state has changed meanwhile.

    The leaders must know the new count and epochs before `add_partitions` creates the partitions.
    An expansion in `read_expansions` can be begun again.
    """
    ops, bumped = bump_ops(topic)
    store.multi([Set(f"{TOPICS}/{topic.name}", topic_node(topic, added)), *ops])
    return bumped


def bump_ops(topic: TopicImage, least: int = 0) -> tuple[list[Op], TopicImage]:
    """Operations that increase the leader epochs of a topic's partitions, to at least ``least``,
    and the topic with these epochs.
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
    """Raise the leader epochs of partitions to at least these values, in one multi. Raises
    BadVersionError if a partition's state has changed meanwhile.
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
    """Write the partitions from index ``first`` on that an expansion adds to a topic. Returns the
    topic with their partition epochs, and the leader epochs that the others had before
    `begin_expansion`.
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
    """Delete a topic with its partitions and settings, all or nothing, and note that its logs must
    be deleted. Returns the partition epoch of the deletion; -1 if it does not exist.
    """
    path = f"{TOPICS}/{topic.name}"
    mark = f"{DELETIONS}/{topic.name}"
    notes = (f"{CONTRACTIONS}/{topic.name}", f"{TOPIC_CONFIGS}/{topic.name}")
    node = _json({"version": 1, "topic_id": encode_id(topic.topic_id)})

    def ops_from(_: int) -> list[Op]:
        ops: list[Op] = [Delete(note) for note in notes if store.exists(note)]
        for index in store.children(f"{path}/partitions"):  # including retired ones
            ops += [
                Delete(f"{path}/partitions/{index}/state"),
                Delete(f"{path}/partitions/{index}"),
            ]
        ops += [Delete(f"{path}/partitions"), Delete(path)]
        return [*ops, Set(mark, node) if store.exists(mark) else Create(mark, node)]

    return multi_with_epochs(store, 1, ops_from) if store.exists(path) else -1


def read_deletions(store: Store) -> dict[str, UUID]:
    """Deleted topics whose logs may still exist: name to topic id."""
    return {
        name: decode_id(json.loads(store.get(f"{DELETIONS}/{name}")[0])["topic_id"])
        for name in store.children(DELETIONS)
    }


def finish_deletion(store: Store, name: str) -> None:
    """Note that the logs of a deleted topic are deleted."""
    if store.exists(f"{DELETIONS}/{name}"):  # otherwise an earlier attempt has noted it
        store.delete(f"{DELETIONS}/{name}")


def announce_failed_log_dir(store: Store, node_id: int) -> None:
    """Notify the controller that a log dir of a broker has failed."""
    node = _json({"version": 1, "broker": node_id, "event": 1})
    store.create(f"{LOG_DIR_EVENTS}/log_dir_event_", node, sequential=True)


def take_failed_log_dirs(store: Store) -> set[int]:
    """The brokers that have reported a failed log dir. Removes the reports."""
    brokers = set()
    for name in store.children(LOG_DIR_EVENTS):
        path = f"{LOG_DIR_EVENTS}/{name}"
        brokers.add(int(json.loads(store.get(path)[0])["broker"]))
        store.delete(path)
    return brokers


def encode_id(value: UUID) -> str:
    """A topic's or cluster's id in Kafka's format: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_id(text: str) -> UUID:
    """Parse the result of `encode_id`."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def _with_epochs(
    topic: TopicImage,
    first: int,
    first_epoch: int,
    priors: tuple[tuple[int, int], ...] = (),
) -> TopicImage:
    """The topic with consecutive partition epochs from index ``first`` on."""
    numbered = (
        partition._replace(
            partition_epoch=first_epoch + place, prior_leader_epochs=priors, state_version=0
        )
        for place, partition in enumerate(topic.partitions[first:])
    )
    return topic._replace(partitions=(*topic.partitions[:first], *numbered))


def topic_node(topic: TopicImage, added: Sequence[Sequence[int]] = ()) -> bytes:
    """A topic's id and replicas in Kafka's format, including partitions that are being added."""
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


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
