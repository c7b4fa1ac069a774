"""The controller's reads and writes of the coordination store.

Every write is a multi that checks the version of `/controller_epoch`, so a replaced controller
cannot write. Large writes are split into several multis, but only where `load` can recognize a
crash between two of them. In addition to Kafka's nodes there are

    /admin/expansions/T          the expansion of a topic (KIP-253)
    /admin/contractions/T        its contraction (coordination/contraction_nodes.py)
    /admin/replica_deletions/T   replicas to delete, on brokers that may be unavailable

Calls block. The broker's store thread runs them, one at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from kstore.broker.coordination import config_nodes, registration, znodes
from kstore.broker.coordination.contraction_nodes import CONTRACTIONS
from kstore.broker.coordination.partition_nodes import (
    PARTITION_EPOCH,
    create_ops,
    partition_node,
    read_state,
    state_node,
)
from kstore.broker.coordination.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NoNodeError,
    Op,
    Set,
    StoreError,
)
from kstore.broker.runtime.controller.contraction_store import ContractionStore
from kstore.broker.runtime.controller.settings import writes_of
from kstore.broker.state.controller.state import (
    NOT_KNOWN,
    Contraction,
    Expansion,
    PartitionChange,
    TopicId,
    deletion_rows,
)
from kstore.broker.state.metadata.image import BrokerImage, PartitionImage, TopicImage

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store
    from kstore.broker.state.controller.state import ControllerState

__all__ = ["ControllerStore", "DeposedError", "Found"]

EXPANSIONS = "/admin/expansions"
REPLICA_DELETIONS = "/admin/replica_deletions"
MAX_OPS = 500
MAX_BYTES = 400_000
"""The limit of one multi: an ensemble refuses requests of more than a megabyte."""
NODE_BYTES = 300
"""The approximate size of a partition's two nodes and their paths, without prior leader epochs."""
PRIOR_BYTES = 12


class DeposedError(StoreError):
    """Another controller was elected; nothing was written."""


class Found(NamedTuple):
    """The contents of the store."""

    brokers: dict[int, BrokerImage]
    topics: list[TopicImage]
    partition_epoch: int
    expansions: list[Expansion]
    contractions: list[Contraction]
    deletions: dict[TopicId, dict[int, frozenset[int]]]
    half_deleted: list[str]
    """Topics whose deletion is decided, but some of whose nodes still exist."""
    written: dict[tuple[str, int], int]
    """The transaction that last wrote each partition's state."""
    setting_writes: dict[str, int]
    """How often the settings of each topic were written."""


class ControllerStore:
    """The store for one controller."""

    def __init__(self, store: Store, controller_epoch: int, epoch_version: int) -> None:
        self._store = store
        self._epoch = controller_epoch
        self.last = registration.ControllerEpoch(controller_epoch, epoch_version, frozenset())
        """`/controller_epoch` as this controller last wrote it."""
        self._known: set[str] = set()  # nodes below our own folders
        self.contractions = ContractionStore(store, self._write)

    # ---- reading ----

    def brokers(self) -> dict[int, BrokerImage]:
        """The registered brokers."""
        return registration.read_brokers(self._store)

    def unclean_shutdowns(self, registered: Mapping[int, BrokerImage]) -> dict[int, int]:
        """See coordination/registration.py. Read them after the brokers."""
        return registration.unclean_shutdowns(self._store, registered)

    def forget_shutdowns(self, taken: Mapping[int, int]) -> None:
        """Delete unclean shutdowns that were handled, unless the broker had another one since."""
        for node_id, version in taken.items():
            with suppress(BadVersionError, NoNodeError):
                self._multi([Delete(f"{registration.UNCLEAN_SHUTDOWNS}/{node_id}", version)])

    def topic_configs(self, name: str) -> tuple[dict[str, str], int]:
        """The settings of a topic, and how often they were written."""
        [known] = self._store.read_many([f"{config_nodes.TOPIC_CONFIGS}/{name}"])
        return ({}, 0) if known is None else (json.loads(known[0])["config"], writes_of(known[1]))

    def failed_log_dirs(self) -> set[int]:
        """The brokers that have reported a failed log dir. Each report is returned once."""
        return znodes.take_failed_log_dirs(self._store)

    def load(self) -> Found:
        """Read everything. Raises DeposedError if another controller was elected meanwhile."""
        known = registration.read_epoch(self._store)
        if known.epoch == self._epoch:  # otherwise this controller was replaced
            self.last = known
        for folder in (EXPANSIONS, CONTRACTIONS, REPLICA_DELETIONS):
            self._store.ensure(folder)
        self._write([])
        marks = znodes.read_deletions(self._store)
        growing = self._load_expansions()
        found = Found(
            self.brokers(), [], self._partition_epoch(), [], [], self._load_deletions(), [], {}, {}
        )
        names = self._store.children(znodes.TOPICS)
        nodes = self._store.read_many([f"{znodes.TOPICS}/{name}" for name in names])
        configs = self._store.read_many([f"{config_nodes.TOPIC_CONFIGS}/{name}" for name in names])
        topics = []
        for name, node, config in zip(names, nodes, configs, strict=True):
            if name in marks:
                found.half_deleted.append(name)
            elif node is not None:
                read = json.loads(node[0])
                topics.append((name, read, {} if config is None else json.loads(config[0])))
                found.setting_writes[name] = 0 if config is None else writes_of(config[1])
        states = self._load_partitions(
            (name, index) for name, read, _ in topics for index in range(len(read["partitions"]))
        )
        for name, read, settings in topics:
            topic = _topic_image(name, read, settings.get("config", {}), states)
            _note_topic(found, topic, read, growing, states)
        found.contractions.extend(self.contractions.load(found.topics))
        return found

    def _partition_epoch(self) -> int:
        epoch: int = json.loads(self._store.get(PARTITION_EPOCH)[0])["partition_epoch"]
        return epoch

    def _load_partitions(
        self, places: Iterable[tuple[str, int]]
    ) -> dict[tuple[str, int], tuple[PartitionImage, int]]:
        """The existing partitions, without their replicas, and the store's transactions that wrote
        their states.
        """
        wanted = list(places)
        folders = [f"{znodes.TOPICS}/{name}/partitions/{index}" for name, index in wanted]
        own = self._store.read_many(folders)
        states = self._store.read_many([f"{folder}/state" for folder in folders])
        found = {}
        for place, mine, state in zip(wanted, own, states, strict=True):
            if mine is not None and state is not None:
                data, stat = state
                found[place] = (
                    read_state(data, stat.version, partition_node(mine[0])), stat.mzxid
                )  # fmt: skip
        return found

    def _load_expansions(self) -> dict[TopicId, Expansion]:
        """The expansions, without the new partitions."""
        found = {}
        for name in self._store.children(EXPANSIONS):
            self._known.add(f"{EXPANSIONS}/{name}")
            node = json.loads(self._store.get(f"{EXPANSIONS}/{name}")[0])
            topic = TopicId(name, znodes.decode_id(node["topic_id"]))
            epochs = _numbers(node["prior_leader_epochs"])
            found[topic] = Expansion(topic, (), epochs, node.get("begun_ms", NOT_KNOWN))
        return found

    def _load_deletions(self) -> dict[TopicId, dict[int, frozenset[int]]]:
        found: dict[TopicId, dict[int, frozenset[int]]] = {}
        for name in self._store.children(REPLICA_DELETIONS):
            path = f"{REPLICA_DELETIONS}/{name}"
            self._known.add(path)
            for row in json.loads(self._store.get(path)[0])["deletions"]:
                topic = TopicId(name, znodes.decode_id(row["topic_id"]))
                found[topic] = {int(i): frozenset(b) for i, b in row["replicas"].items()}
        return found

    # ---- writing ----

    def require(self, *features: str) -> None:
        """Exclude brokers that do not support exactly these features."""
        self._multi(registration.require_ops(self._store, self.last, features))
        self.last = registration.ControllerEpoch(
            self._epoch, self.last.version + 1, frozenset(features)
        )

    def write_changes(self, state: ControllerState, changes: Sequence[PartitionChange]) -> None:
        """Write the next states of partitions, and changed assignments."""
        moved: dict[str, list[PartitionChange]] = {}
        groups: list[list[Op]] = []
        for change in changes:
            known = state.topics[change.topic].partitions[change.partition]
            before = (known.replicas, known.adding, known.removing)
            if before == (change.image.replicas, change.image.adding, change.image.removing):
                groups.append([self._state_op(change)])
            else:
                moved.setdefault(change.topic, []).append(change)
        for name, several in moved.items():
            groups.append([*map(self._state_op, several), *self._move_ops(state, name, several)])
        self._write(groups)

    def _state_op(self, change: PartitionChange) -> Op:
        path = f"{znodes.TOPICS}/{change.topic}/partitions/{change.partition}/state"
        return Set(path, state_node(change.image, self._epoch), change.image.state_version)

    def _move_ops(
        self, state: ControllerState, name: str, changes: Iterable[PartitionChange]
    ) -> list[Op]:
        topic = state.topics[name]
        partitions = list(topic.partitions)
        dropped: dict[int, frozenset[int]] = {}
        for change in changes:
            partitions[change.partition] = change.image
            if change.dropped:
                dropped[change.partition] = frozenset(change.dropped)
        expansion = state.expansions.get(name)
        node = znodes.topic_node(
            topic._replace(partitions=tuple(partitions)),
            () if expansion is None else expansion.added,
        )
        ops: list[Op] = [Set(f"{znodes.TOPICS}/{name}", node)]
        if dropped:
            topic_id = TopicId(name, topic.topic_id)
            ops += self._deletion_ops(name, deletion_rows(state, topic_id, dropped))
        return ops

    def create_topic(self, topic: TopicImage, first_epoch: int) -> TopicImage:
        """Write a new topic, whose partitions get partition epochs from ``first_epoch`` on. Returns
        the topic with them. Raises NodeExistsError.
        """
        made = _numbered(topic, 0, first_epoch)
        path = f"{znodes.TOPICS}/{topic.name}"
        configs = f"{config_nodes.TOPIC_CONFIGS}/{topic.name}"
        node = config_nodes.config_node(topic.configs)
        exists = self._store.exists(configs)
        begin: list[Op] = [
            Create(path, znodes.topic_node(topic)),
            Create(f"{path}/partitions"),
            Set(configs, node) if exists else Create(configs, node),
        ]
        self._make_partitions(made, 0, begin, [])
        return made

    def begin_expansion(self, topic: TopicImage, expansion: Expansion) -> None:
        """Assign replicas to the new partitions, and store the current leader epochs."""
        path = f"{EXPANSIONS}/{topic.name}"
        node = {
            "version": 1,
            "topic_id": znodes.encode_id(topic.topic_id),
            "prior_leader_epochs": {str(p): epoch for p, epoch in expansion.prior_leader_epochs},
            "begun_ms": expansion.begun_ms,
        }
        assigned = znodes.topic_node(topic, expansion.added)
        self._write([[Set(f"{znodes.TOPICS}/{topic.name}", assigned), *self._put_ops(path, node)]])
        self._known.add(path)

    def cancel_expansion(self, topic: TopicImage) -> None:
        """Roll back: the topic keeps its partitions."""
        path = f"{EXPANSIONS}/{topic.name}"
        kept = Set(f"{znodes.TOPICS}/{topic.name}", znodes.topic_node(topic))
        self._write([[kept, Delete(path)]])
        self._known.discard(path)

    def end_expansion(
        self, topic: TopicImage, expansion: Expansion, first_epoch: int
    ) -> TopicImage:
        """Create the partitions of an expansion. Returns the topic with them."""
        first = len(topic.partitions) - len(expansion.added)
        grown = _numbered(topic, first, first_epoch, expansion.prior_leader_epochs)
        path = f"{EXPANSIONS}/{topic.name}"
        end: list[Op] = [Delete(path)] if path in self._known else []
        self._make_partitions(grown, first, [], end)
        self._known.discard(path)
        return grown

    def end_contraction(
        self, state: ControllerState, left: TopicImage, gone: Mapping[int, frozenset[int]],
        epoch: int,
    ) -> None:  # fmt: skip
        """Delete retired partitions. After a crash `load` deletes the rest."""
        name = left.name
        rows = deletion_rows(state, TopicId(name, left.topic_id), gone)
        kept = Set(f"{znodes.TOPICS}/{name}", znodes.topic_node(left))
        self._write([[kept, _epoch_op(epoch), *self._deletion_ops(name, rows)]])
        self.contractions.remove_retired(name, len(left.partitions))

    def _make_partitions(
        self, topic: TopicImage, first: int, begin: list[Op], end: list[Op]
    ) -> None:
        """Create the nodes of partitions from index ``first`` on, each with its partition epoch, in
        as many multis as needed.
        """
        path = f"{znodes.TOPICS}/{topic.name}/partitions"
        size = NODE_BYTES + PRIOR_BYTES * first
        step = max(1, min(MAX_OPS // 2, MAX_BYTES // size))
        count = len(topic.partitions)
        for start in range(first, count, step):
            stop = min(start + step, count)
            ops: list[Op] = begin if start == first else []
            ops = [*ops, _epoch_op(topic.partitions[stop - 1].partition_epoch)]
            for index in range(start, stop):
                ops += create_ops(f"{path}/{index}", topic.partitions[index], self._epoch)
            self._write([ops + end if stop == count else ops])
        if first == count and end:
            self._write([end])

    def write_partition_epoch(self, epoch: int) -> None:
        """Set the largest partition epoch that was given out."""
        self._write([[_epoch_op(epoch)]])

    def delete_topic(
        self,
        state: ControllerState,
        topic: TopicImage,
        replicas: Mapping[int, frozenset[int]],
        partition_epoch: int,
    ) -> None:
        """Decide the deletion of a topic and its replicas, and delete its nodes."""
        name = topic.name
        mark = {"version": 1, "topic_id": znodes.encode_id(topic.topic_id)}
        deletions = deletion_rows(state, TopicId(name, topic.topic_id), replicas)
        begun = Create(f"{znodes.DELETIONS}/{name}", _json(mark))
        self._write([[begun, _epoch_op(partition_epoch), *self._deletion_ops(name, deletions)]])
        self.remove_topic_nodes(name)

    def remove_topic_nodes(self, name: str) -> None:
        """Delete the remaining nodes of a topic whose deletion is decided."""
        path = f"{znodes.TOPICS}/{name}"
        groups: list[list[Op]] = []
        if self._store.exists(f"{path}/partitions"):
            for index in self._store.children(f"{path}/partitions"):
                folder = f"{path}/partitions/{index}"
                state = [Delete(f"{folder}/state")] if self._store.exists(f"{folder}/state") else []
                groups.append([*state, Delete(folder)])
        last = [
            f"{path}/partitions",
            path,
            f"{config_nodes.TOPIC_CONFIGS}/{name}",
            f"{EXPANSIONS}/{name}",
            f"{CONTRACTIONS}/{name}",
            f"{znodes.DELETIONS}/{name}",
        ]
        groups.append([Delete(node) for node in last if self._store.exists(node)])
        self._write(groups)
        self._known.discard(f"{EXPANSIONS}/{name}")

    def write_deletions(
        self, state: ControllerState, left: Mapping[TopicId, Mapping[int, frozenset[int]]]
    ) -> None:
        """Store the remaining deletions of these topics."""
        groups = []
        for name in {topic.name for topic in left}:
            rows = {each.topic: each.replicas for each in state.deletions_of(name)}
            rows |= {topic: replicas for topic, replicas in left.items() if topic.name == name}
            groups.append(self._deletion_ops(name, rows))
        self._write(groups)

    def _deletion_ops(
        self, name: str, deletions: Mapping[TopicId, Mapping[int, frozenset[int]]]
    ) -> list[Op]:
        path = f"{REPLICA_DELETIONS}/{name}"
        rows = [
            {
                "topic_id": znodes.encode_id(topic.topic_id),
                "replicas": {str(i): sorted(brokers) for i, brokers in replicas.items()},
            }
            for topic, replicas in deletions.items()
            if replicas
        ]
        if rows:
            ops = self._put_ops(path, {"version": 1, "deletions": rows})
            self._known.add(path)
            return ops
        if path not in self._known:
            return []
        self._known.discard(path)
        return [Delete(path)]

    def _put_ops(self, path: str, node: dict[str, Any]) -> list[Op]:
        data = _json(node)
        return [Set(path, data) if path in self._known else Create(path, data)]

    def _write(self, groups: Sequence[list[Op]]) -> None:
        """Execute groups of operations, each within one multi, several together if they fit."""
        ops: list[Op] = []
        size = 0
        for group in groups:
            group_size = sum(len(op.path) + len(getattr(op, "data", b"")) for op in group)
            if ops and (len(ops) + len(group) > MAX_OPS or size + group_size > MAX_BYTES):
                self._multi(ops)
                ops, size = [], 0
            ops += group
            size += group_size
        if ops or not groups:
            self._multi(ops)

    def _multi(self, ops: list[Op]) -> None:
        try:
            self._store.multi([Check(registration.CONTROLLER_EPOCH, self.last.version), *ops])
        except (BadVersionError, NoNodeError) as problem:
            if problem.op_index == 0:
                raise DeposedError(
                    f"the controller of epoch {self._epoch} was replaced"
                ) from problem
            raise


def _topic_image(
    name: str,
    node: Mapping[str, Any],
    configs: Mapping[str, str],
    states: Mapping[tuple[str, int], tuple[PartitionImage, int]],
) -> TopicImage:
    """A topic with its partitions up to the first missing one."""
    coming, going = node.get("adding_replicas", {}), node.get("removing_replicas", {})
    partitions = []
    for index in range(len(node["partitions"])):
        if (name, index) not in states:
            break
        key = str(index)
        partitions.append(
            states[name, index][0]._replace(
                replicas=tuple(node["partitions"][key]),
                adding=tuple(coming.get(key, ())),
                removing=tuple(going.get(key, ())),
            )
        )
    return TopicImage(name, znodes.decode_id(node["topic_id"]), tuple(partitions), configs)


def _note_topic(
    found: Found,
    topic: TopicImage,
    node: Mapping[str, Any],
    growing: Mapping[TopicId, Expansion],
    states: Mapping[tuple[str, int], tuple[PartitionImage, int]],
) -> None:
    """Add a topic, and its expansion if partitions are missing."""
    found.topics.append(topic)
    have, count = len(topic.partitions), len(node["partitions"])
    for index in range(have):
        found.written[topic.name, index] = states[topic.name, index][1]
    topic_id = TopicId(topic.name, topic.topic_id)
    if topic_id in growing or have < count:
        added = tuple(tuple(node["partitions"][str(index)]) for index in range(have, count))
        expansion = growing.get(topic_id, Expansion(topic_id, (), ()))
        found.expansions.append(expansion._replace(added=added))


def _numbered(
    topic: TopicImage,
    first: int,
    first_epoch: int,
    priors: tuple[tuple[int, int], ...] = (),
) -> TopicImage:
    new = (
        partition._replace(partition_epoch=first_epoch + place, prior_leader_epochs=priors)
        for place, partition in enumerate(topic.partitions[first:])
    )
    return topic._replace(partitions=(*topic.partitions[:first], *new))


def _epoch_op(epoch: int) -> Op:
    return Set(PARTITION_EPOCH, _json({"version": 1, "partition_epoch": epoch}))


def _numbers(node: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    return tuple((int(name), number) for name, number in node.items())


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
