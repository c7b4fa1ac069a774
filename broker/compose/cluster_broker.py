"""The parts of a broker of a cluster: the shared store and the parts that depend on it. Logs are
opened later, when the controller requests it (replica_manager.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Set
from typing import TYPE_CHECKING

from kstore.broker.compose.broker import Broker
from kstore.broker.coordination import znodes
from kstore.broker.coordination.store import NodeExistsError, StoreError
from kstore.broker.coordination.stores import open_shared_store
from kstore.broker.runtime.config_changes.config_reload import ConfigReload, UserReload
from kstore.broker.runtime.config_changes.config_watch import ConfigWatch
from kstore.broker.runtime.coordinators.runtime import LazyCoordinator, watch_leadership
from kstore.broker.runtime.imports import import_modules
from kstore.broker.runtime.lazy import Lazy
from kstore.broker.runtime.log_dirs.clean_shutdown import (
    NO_EPOCH,
    mark_clean,
    read_ended_epoch,
)
from kstore.broker.runtime.log_dirs.log_dir_events import LogDirEvents
from kstore.broker.runtime.log_dirs.meta_properties import claim_log_dirs
from kstore.broker.runtime.membership.member import ClusterMember
from kstore.broker.runtime.metadata.cache import MetadataCache
from kstore.broker.runtime.metadata.dynamic_configs import DynamicConfigs
from kstore.broker.runtime.metadata.image_updates import ImageUpdates
from kstore.broker.runtime.metadata.leader_hints import give_hints
from kstore.broker.runtime.metadata.leader_waits import LeaderWaits
from kstore.broker.runtime.replication.counts import PreparedCounts
from kstore.broker.runtime.replication.isr import IsrChanges
from kstore.broker.runtime.replication.replica_manager import ReplicaManager
from kstore.broker.runtime.replication.replicas import Replicas
from kstore.broker.runtime.topics.cluster_topics import ClusterTopics
from kstore.broker.runtime.topics.topics import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_TOPIC,
)
from kstore.broker.state.metadata.image import BrokerImage, Endpoint, MetadataImage

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from uuid import UUID

    from kstore.broker.coordination.renewable import RenewableStore
    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.coordinators.topic import CoordinatorTopic
    from kstore.broker.runtime.groups.partition_lookup import PartitionLookup
    from kstore.broker.runtime.log_limit import Report
    from kstore.broker.runtime.replication.fetchers import Fetchers
    from kstore.broker.runtime.replication.leader_throttle import LeaderThrottle
    from kstore.broker.runtime.replication.segment_repairs import SegmentRepairs
    from kstore.broker.runtime.replication.throttled_replicas import ThrottledReplicas
    from kstore.broker.runtime.request_server import RequestServer
    from kstore.broker.runtime.security.scram_users import ScramUsers
    from kstore.broker.runtime.transactions.admission import TransactionAdmission
    from kstore.broker.runtime.transactions.markers import MarkerWriter
    from kstore.config import BrokerConfig
    from kstore.types import TopicPartition

__all__ = ["ClusterBroker"]


COORDINATOR_MODULES = {
    OFFSETS_TOPIC: "kstore.broker.runtime.groups.group_coordinator",
    TRANSACTION_TOPIC: "kstore.broker.runtime.transactions.transaction_coordinator",
    SHARE_STATE_TOPIC: "kstore.broker.runtime.shares.share_coordinator",
}


class ClusterBroker(Broker):
    """One of several brokers that share a store."""

    shares_store = True

    def __init__(
        self,
        config: BrokerConfig,
        loop: AbstractEventLoop,
        server: RequestServer,
        report: Report,
    ) -> None:
        super().__init__(config, loop, server, report)
        self.isr: IsrChanges
        """Proposals of in-sync replicas to the controller (runtime/replication)."""
        self.fetchers: Lazy[Fetchers] = Lazy(self._make_fetchers)
        """Copies partitions from other brokers."""
        self.partition_lookup = Lazy(self._make_partition_lookup)
        self.leader_waits: LeaderWaits
        """Requests that wait until a leader is elected (runtime/metadata)."""
        self._ended_epoch = NO_EPOCH
        self.ended_epoch: Callable[[], int] = lambda: self._ended_epoch
        """The broker epoch that ended with a clean shutdown, once all logs are closed."""
        self.repairs: Lazy[SegmentRepairs] = Lazy(self._make_repairs)
        """Repairs damaged parts of segments; created when a log of a cluster has damage."""

    def open(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Open as any broker does, but first read how the last run ended: opening changes the log
        dirs.
        """
        if not self.log_manager.is_open:
            self._ended_epoch = read_ended_epoch(self.config["log.dirs"])
        super().open(endpoints)

    def open_parts(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Open the shared store, and create the parts that depend on it. StoreError if the store is
        unavailable, LogStorageError if a log dir belongs to another broker.
        """
        store = open_shared_store(self.config)
        self.store = store
        try:
            self._open_in(store, endpoints)
        except StoreError:
            store.close()  # a later attempt has a separate session
            raise

    def _open_in(self, store: RenewableStore, endpoints: tuple[Endpoint, ...]) -> None:
        config = self.config
        self.plane.fetch.peer_listener = config.inter_broker_listener.name
        znodes.prepare(store)
        ConfigWatch(self.node, store, self._reload).start()
        self.configs = DynamicConfigs(config, store, self.run_blocking, self.report)
        self.configs.load()
        self.check_rights()
        self.open_tokens()
        if self.tokens is not None or (
            self.security is not None and self.security.sasl is not None
        ):
            self.scram.forget()  # an earlier attempt's
            self.scram()
        cluster_id = _cluster_id(store)
        paths = [log_dir.path for log_dir in self.log_manager.dirs]
        claim_log_dirs(paths, cluster_id, self.node_id)
        myself = BrokerImage(self.node_id, _in_order(endpoints, config), config["broker.rack"])
        image = MetadataImage(cluster_id).with_broker(myself)
        self.metadata = MetadataCache(image, self._image_changed)
        self.leader_waits = LeaderWaits(
            self.node, self.table, self.metadata, self.plane.forget_answers
        )
        member = self.membership = ClusterMember(
            self.node, myself, store, self.metadata, self.peers, lambda: self.replica_manager,
            self._ended_epoch,
        )  # fmt: skip
        self.ended_epoch = lambda: member.ended_epoch
        member.suspected_brokers.on_suspected.append(self.leader_waits.lost)
        member.suspected_brokers.on_cleared.append(self.leader_waits.found)
        replicas = Replicas(
            self.node, self.table, self.log_manager, self.descriptors, self.fetchers
        )
        images = ImageUpdates(self.node, store, self.metadata, self.table, replicas)
        images.on_broker_gone.append(lambda node_id: self.peers().forget(node_id))
        self.counts = PreparedCounts(self.node, store, self.metadata)
        self.replica_manager = ReplicaManager(
            self.node, member, store, self.log_manager, replicas, images, self.counts
        )
        member.on_session_lost.append(replicas.fence)
        self.log_dir_failures.on_partition = replicas.fail
        announce = LogDirEvents(self.node, store).announce
        self.log_dir_failures.on_offline = lambda places: announce()
        self.replica_manager.on_refused = announce
        self.replica_manager.on_older_store = lambda: self.producer_ids().note_older_store()
        self.isr = IsrChanges(self.node, self.table, member, self.peers)
        self.isr.start()
        give_hints(config, self.table, self.metadata)
        self._let_coordinators_follow()
        self._watch_damage()
        topics = self.topics = ClusterTopics(
            self.node, store, self.metadata, self.log_manager, member, images
        )
        images.on_topic_added.append(topics.configure)
        self.configs.when_changed = self.topics.take_over_defaults
        self.config_reload = ConfigReload(
            self.configs,
            topics,
            UserReload(self.node, self.scram, self.quotas, self.security),
            self.acls,
            self._reload_features,
        )

    def _image_changed(self) -> None:
        self.plane.forget_answers()
        self.leader_waits.image_changed()

    async def _reload(self, paths: Set[str]) -> None:
        await self.config_reload.reload(paths)

    async def _reload_features(self) -> None:
        features = self.features.made
        if features is not None:
            await self.run_blocking(features.reload)
            self.plane.forget_answers()

    def _let_coordinators_follow(self) -> None:
        """Connect coordinators to changes of leadership, and let them forget deleted topics."""

        def forget(name: str, topic_id: UUID) -> None:
            if self.groups.made is not None:
                self.groups.made.forget_soon(name)
            if self.share_coordinator.made is not None:
                self.share_coordinator.made.forget_topic(topic_id)

        def forget_partitions(name: str, count: int) -> None:
            if self.groups.made is not None:
                self.groups.made.forget_soon(name, count)

        coordinators: dict[str, LazyCoordinator] = {
            OFFSETS_TOPIC: self.groups,
            TRANSACTION_TOPIC: self.transactions,
            SHARE_STATE_TOPIC: self.share_coordinator,
        }

        async def import_before(topics: Collection[str]) -> None:
            """Import a coordinator's modules in a thread; it takes about 60 ms."""
            modules = {COORDINATOR_MODULES[topic] for topic in coordinators if topic in topics}
            missing = [name for name in modules if name not in sys.modules]
            if missing:
                missing.append("kstore.broker.runtime.coordinators.topic")
                await self.run_blocking(lambda: import_modules(missing))

        self.replica_manager.before_roles = import_before
        on_leadership = self.replica_manager.replicas.on_leadership
        on_leadership.append(watch_leadership(coordinators))
        on_leadership.append(lambda *_: self.leader_waits.look_soon())
        self.replica_manager.images.on_topic_deleted.append(forget)
        self.replica_manager.images.on_partitions_gone.append(forget_partitions)

    def _watch_damage(self) -> None:
        """Start repairs of damaged parts of segments from other replicas."""

        def note(place: TopicPartition) -> None:
            self.repairs().note(place)

        def note_role(place: TopicPartition, leads: bool, leader_epoch: int) -> None:
            if self.repairs.made is not None:
                self.repairs.made.note_role(place)

        def from_any_thread(place: TopicPartition) -> None:
            if not self.loop.is_closed():
                self.loop.call_soon_threadsafe(note, place)

        for log_dir in self.log_manager.dirs:
            log_dir.when_damaged(from_any_thread)
        self.replica_manager.replicas.on_leadership.append(note_role)

    def _make_partition_lookup(self) -> PartitionLookup:
        from kstore.broker.runtime.groups.partition_lookup import PartitionLookup

        images = self.replica_manager.images
        return PartitionLookup(self.node, self.store, self.metadata, images)

    def _make_fetchers(self) -> Fetchers:
        from kstore.broker.runtime.replication.fetchers import Fetchers
        from kstore.broker.runtime.replication.replica_throttles import ReplicaThrottles

        throttles = ReplicaThrottles(
            self.loop,
            self._throttled_replicas("follower"),
            self._throttled_replicas("leader"),
            Lazy(self._make_leader_throttle),
        )
        return Fetchers(self.node, self.membership, self.peers, self.commits, throttles)

    def _make_leader_throttle(self) -> LeaderThrottle:
        from kstore.broker.runtime.replication.leader_throttle import LeaderThrottle

        named = self._throttled_replicas("leader")
        return LeaderThrottle(self.loop, named, self.log_manager, self.plane)

    def _throttled_replicas(self, side: str) -> ThrottledReplicas:
        from kstore.broker.runtime.replication.throttled_replicas import ThrottledReplicas

        return ThrottledReplicas(side, self.node, self.configs, self.metadata)

    def _make_repairs(self) -> SegmentRepairs:
        from kstore.broker.runtime.replication.segment_repairs import SegmentRepairs

        replicas = self.replica_manager.replicas
        return SegmentRepairs(self.node, self.table, self.metadata, replicas, self.peers)

    def coordinator_topic(self, name: str) -> CoordinatorTopic:
        """A topic whose partitions are served by their leaders."""
        from kstore.broker.runtime.coordinators.topic import ClusterTopic

        may_answer = self.membership.may_answer_alone
        return ClusterTopic(name, self.node, self.metadata, self.topics, self.table, may_answer)

    def make_marker_writer(self) -> MarkerWriter:
        """A writer that sends markers to the leaders of their partitions."""
        from kstore.broker.runtime.transactions.marker_sender import MarkerSender

        markers = self.markers()
        return MarkerSender(self.node, self.store, self.metadata, markers, self.peers)

    def make_admission(self) -> TransactionAdmission:
        """An admission that asks the coordinator of each transaction."""
        from kstore.broker.runtime.transactions.admission import PeerAdmission

        return PeerAdmission(self.node, self.peers, self.transactions, self.markers)

    def make_scram(self) -> ScramUsers:
        """The cluster's credentials, which this broker caches: clients can log in while the store
        is unavailable.
        """
        from kstore.broker.runtime.security.scram_users import ClusterScramUsers

        users = ClusterScramUsers(self.store, self.tokens)
        users.load()
        return users

    async def leave(self) -> None:
        """Leave the cluster. Afterwards nothing is proposed to its controller."""
        await super().leave()
        self.isr.close()
        self.counts.close()

    def close(self) -> None:
        """Stop copying and repairs, then close all other parts."""
        if self.fetchers.made is not None:
            self.fetchers.made.close()
        if self.repairs.made is not None:
            self.repairs.made.close()
        manager = self.log_manager
        paths = [each.path for each in manager.dirs if each.path not in manager.failed]
        super().close()
        if (ended_epoch := self.ended_epoch()) != NO_EPOCH:  # also after a failed start
            mark_clean(paths, ended_epoch)


def _cluster_id(store: Store) -> str:
    """The cluster's id; if several brokers start at the same time, one creates it."""
    try:
        return znodes.cluster_id(store)
    except NodeExistsError:
        return znodes.cluster_id(store)


def _in_order(endpoints: tuple[Endpoint, ...], config: BrokerConfig) -> tuple[Endpoint, ...]:
    """The endpoints, with the inter-broker listener first: other brokers connect to the first
    one.
    """
    name = (config["inter.broker.listener.name"] or "").upper()
    return tuple(sorted(endpoints, key=lambda end: end.listener != name)) if name else endpoints
