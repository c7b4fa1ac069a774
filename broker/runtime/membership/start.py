"""How a broker of a cluster opens: the shared store and what is known from it, but no log; those
are opened when the controller says which (replica_manager.py).
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

from kstore.broker.coordination import znodes
from kstore.broker.coordination.store import NodeExistsError, StoreError
from kstore.broker.coordination.stores import open_shared_store
from kstore.broker.runtime.coordinators.runtime import LazyCoordinator, watch_leadership
from kstore.broker.runtime.log_dirs.meta_properties import claim_log_dirs
from kstore.broker.runtime.membership.config_reload import ConfigReload, UserReload
from kstore.broker.runtime.membership.config_watch import ConfigWatch
from kstore.broker.runtime.membership.member import ClusterMember
from kstore.broker.runtime.metadata.cache import MetadataCache
from kstore.broker.runtime.metadata.dynamic_configs import DynamicConfigs
from kstore.broker.runtime.metadata.image_updates import ImageUpdates
from kstore.broker.runtime.metadata.leader_hints import give_hints
from kstore.broker.runtime.replication.isr import IsrChanges
from kstore.broker.runtime.replication.replica_manager import ReplicaManager
from kstore.broker.runtime.replication.replicas import Replicas
from kstore.broker.runtime.topics.cluster_topics import ClusterTopics
from kstore.broker.runtime.topics.topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kstore.broker.state.metadata.image import BrokerImage, Endpoint, MetadataImage

if TYPE_CHECKING:
    from kstore.broker.coordination.renewable import RenewableStore
    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.broker import Broker
    from kstore.config import BrokerConfig
    from kstore.types import TopicPartition

__all__ = ["open_in_cluster"]


def open_in_cluster(broker: Broker, endpoints: tuple[Endpoint, ...]) -> None:
    """Give the broker its parts, but for the logs; its log dirs are open already. Blocks;
    StoreError where the store can't be had, LogStorageError where a log dir is somebody else's.
    """
    store = open_shared_store(broker.config)
    broker.store = store
    try:
        _open_parts(broker, store, endpoints)
    except StoreError:
        store.close()  # a later attempt has a session of its own
        raise


def _open_parts(broker: Broker, store: RenewableStore, endpoints: tuple[Endpoint, ...]) -> None:
    config = broker.config
    znodes.prepare(store)

    async def reload(paths: Set[str]) -> None:
        await broker.config_reload.reload(paths)

    ConfigWatch(broker.node, store, reload).start()
    broker.configs = DynamicConfigs(config, store, broker.run_blocking, broker.report)
    broker.configs.load()
    broker.check_rights()
    if broker.security is not None and broker.security.sasl is not None:
        broker.scram.forget()  # an earlier attempt's
        broker.scram()
    cluster_id = _cluster_id(store)
    claim_log_dirs(config["log.dirs"], cluster_id, broker.node_id)
    myself = BrokerImage(broker.node_id, _in_order(endpoints, config), config["broker.rack"])
    image = MetadataImage(cluster_id).with_broker(myself)
    broker.metadata = MetadataCache(image, broker.plane.forget_answers)
    member = broker.membership = ClusterMember(
        broker.node, myself, store, broker.metadata, broker.peers, lambda: broker.replica_manager
    )
    replicas = Replicas(
        broker.node, broker.table, broker.log_manager, broker.descriptors, broker.fetchers
    )
    images = ImageUpdates(broker.node, store, broker.metadata, broker.table, replicas)
    images.on_broker_gone.append(lambda node_id: broker.peers().forget(node_id))
    broker.replica_manager = ReplicaManager(
        broker.node, member, store, broker.log_manager, replicas, images
    )
    member.on_session_lost.append(replicas.fence)
    broker.isr = IsrChanges(broker.node, broker.table, member, broker.peers)
    broker.isr.start()
    give_hints(config, broker.table, broker.metadata)
    _let_coordinators_follow(broker)
    _watch_damage(broker)
    topics = broker.topics = ClusterTopics(
        broker.node, store, broker.metadata, broker.log_manager, member, images
    )
    images.on_topic_added.append(topics.configure)
    broker.configs.when_changed = broker.topics.take_over_defaults
    broker.config_reload = ConfigReload(
        broker.configs,
        topics,
        UserReload(broker.node, broker.scram, broker.quotas, broker.security),
        broker.acls,
        lambda: _reload_features(broker),
    )


async def _reload_features(broker: Broker) -> None:
    features = broker.features.made
    if features is not None:
        await broker.run_blocking(features.reload)
        broker.plane.forget_answers()


def _let_coordinators_follow(broker: Broker) -> None:
    """Have coordinators follow their partitions, and groups forget deleted topics."""

    def forget(name: str) -> None:
        if broker.groups.made is not None:
            broker.groups.made.forget_soon(name)

    coordinators: dict[str, LazyCoordinator] = {
        OFFSETS_TOPIC: broker.groups,
        TRANSACTION_TOPIC: broker.transactions,
    }
    broker.replica_manager.replicas.on_leadership.append(watch_leadership(coordinators))
    broker.replica_manager.images.on_topic_deleted.append(forget)


def _watch_damage(broker: Broker) -> None:
    """Have damaged parts of segments written again from other replicas."""

    def note(place: TopicPartition) -> None:
        broker.repairs().note(place)

    def note_role(place: TopicPartition, leads: bool, leader_epoch: int) -> None:
        if broker.repairs.made is not None:
            broker.repairs.made.note_role(place)

    def from_any_thread(place: TopicPartition) -> None:
        if not broker.loop.is_closed():
            broker.loop.call_soon_threadsafe(note, place)

    for log_dir in broker.log_manager.dirs:
        log_dir.when_damaged(from_any_thread)
    broker.replica_manager.replicas.on_leadership.append(note_role)


def _cluster_id(store: Store) -> str:
    """The cluster's id; of several brokers that start at once, one makes it."""
    try:
        return znodes.cluster_id(store)
    except NodeExistsError:
        return znodes.cluster_id(store)


def _in_order(endpoints: tuple[Endpoint, ...], config: BrokerConfig) -> tuple[Endpoint, ...]:
    """The endpoints, that of the other brokers first: they go to the first."""
    name = (config["inter.broker.listener.name"] or "").upper()
    return tuple(sorted(endpoints, key=lambda end: end.listener != name)) if name else endpoints
