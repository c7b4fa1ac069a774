"""What a broker of a cluster writes about itself to the coordination store, and reads about the
other brokers: `/brokers/ids/N`, `/controller` and `/controller_epoch` as in Kafka, and in addition

    /brokers/lives/N              written with each registration: its mzxid is the last broker epoch
    /brokers/unclean_shutdowns/N  for the controller: a run of N ended uncleanly

While the cluster uses a feature that older versions of kstore do not know, `/controller_epoch` and
`/cluster/id` also contain its name after their value. Then a broker of version 0.1.0 does not
start. One that is running cannot parse the number: it logs it, and does not take part in elections.

The calls block. runtime/membership decides when to make them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kstore.broker.coordination import znodes
from kstore.broker.coordination.store import (
    BadVersionError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Op,
    Set,
    StoreError,
)
from kstore.broker.state.metadata.image import BrokerImage, Endpoint

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store

__all__ = [
    "CONTROLLER",
    "CONTROLLER_EPOCH",
    "UNCLEAN_SHUTDOWNS",
    "ClusterView",
    "ControllerEpoch",
    "claim_controller",
    "leave",
    "read_broker",
    "read_brokers",
    "read_epoch",
    "read_view",
    "register",
    "require_ops",
    "resign",
    "unclean_shutdowns",
    "unregister",
]

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
LIVES = "/brokers/lives"
UNCLEAN_SHUTDOWNS = "/brokers/unclean_shutdowns"
NO_EPOCH = -1
NEEDS = "needs "
ADVICE = ": upgrade this broker"


class ControllerEpoch(NamedTuple):
    """The contents of `/controller_epoch`."""

    epoch: int
    version: int
    """The node's version; -1 if it does not exist."""
    needs: frozenset[str]
    """The features that brokers must support."""


class ClusterView(NamedTuple):
    """The live brokers, and the controller (-1: none)."""

    controller_id: int
    controller_is_mine: bool
    """Whether /controller belongs to this session."""
    controller_epoch: int
    controller_epoch_version: int
    broker_ids: frozenset[int]


def register(
    store: Store,
    broker: BrokerImage,
    now_ms: int,
    protocols: Mapping[str, str] | None = None,
    ended_epoch: int = NO_EPOCH,
) -> int | None:
    """Register this broker as alive, and return its broker epoch (the czxid of its node, KIP-380).
    Returns None while a node with its id belongs to another session. Raises StoreError if the
    cluster needs a feature that this version does not support.

    ``ended_epoch`` is the broker epoch of the last run that ended cleanly. If there was a later
    run, an unclean shutdown is written for the controller.
    """
    missing = read_epoch(store).needs.difference(znodes.BROKER_FEATURES)
    if missing:
        raise StoreError(
            f"the cluster needs {', '.join(sorted(missing))}, which this version of kstore does not"
            " know: upgrade this broker"
        )
    path = f"{znodes.BROKER_IDS}/{broker.node_id}"
    life = f"{LIVES}/{broker.node_id}"
    for folder in (LIVES, UNCLEAN_SHUTDOWNS):
        store.ensure(folder)
    last = store.stat(life)
    node = znodes.broker_node(broker, now_ms, protocols)
    ops: list[Op] = [Create(path, node, ephemeral=True)]
    ops.append(Create(life) if last is None else Set(life, b"", last.version))
    if last is None or last.mzxid != ended_epoch:
        unclean = f"{UNCLEAN_SHUTDOWNS}/{broker.node_id}"
        ops.append(Set(unclean, b"") if store.exists(unclean) else Create(unclean))
    try:
        store.multi(ops)
    except (NodeExistsError, BadVersionError, NoNodeError):
        stat = store.stat(path)
        mine = stat is not None and stat.ephemeral_owner == store.session_id
        return stat.czxid if stat is not None and mine else None
    stat = store.stat(path)
    return None if stat is None else stat.czxid


def unclean_shutdowns(store: Store, registered: Mapping[int, BrokerImage]) -> dict[int, int]:
    """The brokers that have registered after an unclean shutdown, each with the version of its
    node. Registrations that are later than these are left until they are known, since an earlier
    run may still be in sync.
    """
    try:
        names = store.children(UNCLEAN_SHUTDOWNS)
    except NoNodeError:
        return {}
    nodes = store.read_many([f"{UNCLEAN_SHUTDOWNS}/{name}" for name in names])
    found = {int(name): node[1] for name, node in zip(names, nodes, strict=True) if node}
    return {
        node_id: stat.version
        for node_id, stat in found.items()
        if node_id not in registered or stat.mzxid <= registered[node_id].epoch
    }


def read_broker(store: Store, node_id: int) -> BrokerImage | None:
    """A live broker, with its epoch. None if it is not alive."""
    path = f"{znodes.BROKER_IDS}/{node_id}"
    while True:
        stat = store.stat(path)
        if stat is None:
            return None
        try:
            node = json.loads(store.get(path)[0])
        except NoNodeError:
            return None
        again = store.stat(path)
        if again is not None and again.czxid == stat.czxid:  # otherwise it has restarted
            return BrokerImage(
                node_id,
                tuple(map(_endpoint, node["endpoints"])),
                node.get("rack"),
                stat.czxid,
                znodes.ELR_FEATURE in node.get("features", {}),
                znodes.CONTRACTIONS_FEATURE in node.get("features", {}),
            )


def read_brokers(store: Store) -> dict[int, BrokerImage]:
    """The live brokers, by id."""
    found = (read_broker(store, node_id) for node_id in znodes.broker_ids(store))
    return {broker.node_id: broker for broker in found if broker is not None}


def read_view(store: Store) -> ClusterView:
    """The brokers and the controller in the store."""
    found = read_epoch(store)
    controller, mine = -1, False
    try:
        stat = store.stat(CONTROLLER)
        controller = int(json.loads(store.get(CONTROLLER)[0])["brokerid"])
        mine = stat is not None and stat.ephemeral_owner == store.session_id
    except NoNodeError:
        pass
    ids = frozenset(znodes.broker_ids(store))
    return ClusterView(controller, mine, found.epoch, found.version, ids)


def read_epoch(store: Store) -> ControllerEpoch:
    """The controller epoch, 0 before the first, and the features that the cluster needs."""
    try:
        data, version = store.get(CONTROLLER_EPOCH)
    except NoNodeError:
        data, version = b"", -1
    # Empty: another broker has created the node and is about to write the first epoch.
    epoch, _, needs = data.decode().partition(" ")
    names = needs.removeprefix(NEEDS).removesuffix(ADVICE).split()
    return ControllerEpoch(int(epoch or "0"), version, frozenset(names))


def require_ops(store: Store, last: ControllerEpoch, features: Iterable[str]) -> list[Op]:
    """Operations that exclude brokers that do not support exactly these features."""
    needs = _needs(features)
    cluster = znodes.cluster_id(store)
    return [
        Set(CONTROLLER_EPOCH, _epoch_data(last.epoch, features), last.version),
        Set(znodes.CLUSTER_ID, znodes.cluster_id_node(cluster, needs)),
    ]


def _needs(features: Iterable[str]) -> str:
    names = " ".join(sorted(features))
    return f"{NEEDS}{names}{ADVICE}" if names else ""


def _epoch_data(epoch: int, features: Iterable[str]) -> bytes:
    return f"{epoch} {_needs(features)}".strip().encode()


def claim_controller(store: Store, node_id: int, now_ms: int) -> bool:
    """Become the controller, if there is none. The controller epoch increases by one. Returns False
    if another broker was faster.
    """
    store.ensure(CONTROLLER_EPOCH)
    last = read_epoch(store)
    node = {"version": 2, "brokerid": node_id, "timestamp": str(now_ms)}
    claim = Create(CONTROLLER, json.dumps(node, separators=(",", ":")).encode(), ephemeral=True)
    try:
        epoch = _epoch_data(last.epoch + 1, last.needs)
        store.multi([claim, Set(CONTROLLER_EPOCH, epoch, last.version)])
    except (NodeExistsError, BadVersionError):
        return False
    return True


def leave(store: Store, node_id: int) -> None:
    """Delete this session's nodes in one step, so that no broker sees only some of them deleted."""
    ops: list[Op] = []
    for path in (f"{znodes.BROKER_IDS}/{node_id}", CONTROLLER):
        stat = store.stat(path)
        if stat is not None and stat.ephemeral_owner == store.session_id:
            ops.append(Delete(path))
    if ops:
        store.multi(ops)


def unregister(store: Store, node_id: int, epoch: int) -> None:
    """Delete the nodes of another broker whose process with this epoch has ended, without waiting
    for its session to expire. Does nothing if they are deleted already.
    """
    path = f"{znodes.BROKER_IDS}/{node_id}"
    stat = store.stat(path)
    if stat is None or stat.czxid != epoch:
        return
    ops: list[Op] = [Delete(path)]
    controller = store.stat(CONTROLLER)
    if controller is not None and controller.ephemeral_owner == stat.ephemeral_owner:
        ops.append(Delete(CONTROLLER))
    with suppress(NoNodeError):  # another broker was faster
        store.multi(ops)


def resign(store: Store) -> None:
    """Resign as controller, if this session is the controller's."""
    stat = store.stat(CONTROLLER)
    if stat is not None and stat.ephemeral_owner == store.session_id:
        store.delete(CONTROLLER)


def _endpoint(text: str) -> Endpoint:
    listener, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    return Endpoint(listener, host, int(port))
