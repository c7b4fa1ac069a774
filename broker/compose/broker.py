"""The broker: all parts that handlers use. It connects and starts them. It does not answer requests
itself.

Everything runs on one loop; calls that wait for the disk (commits of the coordination store) go
through `run_blocking`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from os import urandom
from typing import TYPE_CHECKING

from kstore._fast.broker.fetch_path import FetchPath
from kstore._fast.broker.partition import Partition
from kstore._fast.broker.partition_table import PartitionTable
from kstore._fast.broker.produce_path import ProducePath
from kstore._fast.network.data_plane import DataPlane
from kstore.broker.runtime.lazy import Lazy
from kstore.broker.runtime.log_dirs.descriptors import Descriptors, grow_descriptor_table
from kstore.broker.runtime.log_dirs.fsync_batch import FsyncBatcher
from kstore.broker.runtime.log_dirs.log_dir_failures import LogDirFailures
from kstore.broker.runtime.log_dirs.log_manager import LogManager
from kstore.broker.runtime.loop_holds import LoopHolds
from kstore.broker.runtime.membership.membership import Membership
from kstore.broker.runtime.metadata.cache import MetadataCache
from kstore.broker.runtime.metadata.dynamic_configs import DynamicConfigs
from kstore.broker.runtime.metadata.listener_settings import ListenerSettings
from kstore.broker.runtime.node import Node
from kstore.broker.runtime.request_log.request_watch import RequestWatch
from kstore.broker.runtime.slices import Turns
from kstore.broker.runtime.topics.topics import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_TOPIC,
    Topics,
)
from kstore.broker.state.metadata.image import Endpoint, MetadataImage
from kstore.broker.state.replication.fetch_session_cache import FetchSessionCache

if TYPE_CHECKING:
    from kstore._fast.broker.fetch_session import FetchSession
    from kstore._fast.network.connection import Connection
    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.config_changes.config_reload import ConfigReload
    from kstore.broker.runtime.coordinators.partition_writer import PartitionWriter
    from kstore.broker.runtime.coordinators.topic import CoordinatorTopic
    from kstore.broker.runtime.groups.expansion_gates import ExpansionGates
    from kstore.broker.runtime.groups.group_coordinator import GroupCoordinator
    from kstore.broker.runtime.groups.partition_ends import PartitionEnds
    from kstore.broker.runtime.groups.partition_lookup import PartitionLookup
    from kstore.broker.runtime.groups.share_states import ShareGroupStates
    from kstore.broker.runtime.log_dirs.replica_moves import ReplicaMoves
    from kstore.broker.runtime.log_dirs.unpacking import Job, Unpacking
    from kstore.broker.runtime.log_limit import Report
    from kstore.broker.runtime.metadata.features import FinalizedFeatures
    from kstore.broker.runtime.peers.peers import Peers
    from kstore.broker.runtime.quotas.client_quota_manager import ClientQuotaManager
    from kstore.broker.runtime.quotas.client_throttles import ClientThrottles
    from kstore.broker.runtime.replication.replica_manager import ReplicaManager
    from kstore.broker.runtime.request_server import RequestServer
    from kstore.broker.runtime.security.acl_store import AclStore
    from kstore.broker.runtime.security.delegation_tokens import DelegationTokens
    from kstore.broker.runtime.security.scram_users import ScramUsers
    from kstore.broker.runtime.security.security import Security
    from kstore.broker.runtime.shares.coordinator_persister import CoordinatorPersister
    from kstore.broker.runtime.shares.share_coordinator import ShareCoordinator
    from kstore.broker.runtime.shares.share_partition_manager import SharePartitionManager
    from kstore.broker.runtime.telemetry.client_metrics import Telemetry
    from kstore.broker.runtime.topics.auto_topic_creation import AutoTopicCreationManager
    from kstore.broker.runtime.topics.internal_topics import InternalTopics
    from kstore.broker.runtime.transactions.admission import TransactionAdmission
    from kstore.broker.runtime.transactions.markers import Markers, MarkerWriter
    from kstore.broker.runtime.transactions.produce import TransactionalProduce
    from kstore.broker.runtime.transactions.producer_ids import ProducerIds
    from kstore.broker.runtime.transactions.transaction_coordinator import TransactionCoordinator
    from kstore.broker.state.security.authorizer import Authorizer
    from kstore.config import BrokerConfig

__all__ = ["Broker"]


class Broker(ABC):
    """One broker: config, store, image, topics, logs and the data plane. StandaloneBroker and
    ClusterBroker create the parts that differ.
    """

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        server: RequestServer,
        report: Report,
    ) -> None:
        """``server`` answers the requests that the data plane does not; ``report`` reports a
        sentence to the operator.
        """
        self.node = Node(config, loop, report)
        self.config = config
        self.loop = loop
        self.node_id = self.node.node_id
        self.report = report
        self.now_ms = self.node.now_ms
        self.run_blocking = self.node.run_blocking
        self._server = server
        self.holds = LoopHolds(self.node, getattr(loop, "watch", None))
        """What blocked the loop."""
        self.turns = Turns(loop)  # shared by wide requests
        self.table = PartitionTable(self.node_id, loop.call_soon)
        self.plane = _plane(config, self.table, server, loop, report)
        self.request_watch = RequestWatch(self.node, self.plane)
        """Logs single requests."""
        self.plane.produce.admit_transactional = self._admit_transactional
        self.plane.produce.unpack_later = self._unpack
        self.unpacking: Lazy[Unpacking] = Lazy(self._make_unpacking)
        """The thread that unpacks compressed batches."""
        self.descriptors = Descriptors()
        self.log_manager = LogManager(self.node, self.table, replicated=self.shares_store)
        self.log_dir_failures = LogDirFailures(self.node, self.log_manager)
        """What happens when a log dir fails."""
        self.store: Store
        self.metadata: MetadataCache
        self.topics: Topics
        self.configs: DynamicConfigs
        self.config_reload: ConfigReload
        """In a cluster, applies settings that another broker has changed."""
        self.membership: Membership
        """This broker's membership in its cluster (runtime/membership)."""
        self.replica_manager: ReplicaManager
        """In a cluster, executes the controller's requests (runtime/replication)."""
        self._promise_coordinators()
        self.authorizer: Authorizer | None = None
        """Checks the rights of principals (state/security/authorizer.py). None if
        authorizer.class.name is not set.
        """
        self.acls: AclStore | None = None
        """Stores the authorizer's ACLs (runtime/security/acl_store.py)."""
        self.features: Lazy[FinalizedFeatures] = Lazy(self._make_features)
        self.quotas: Lazy[ClientQuotaManager] = Lazy(self._make_quotas)
        """The quotas of clients, and their application."""
        self.telemetry: Lazy[Telemetry] = Lazy(self._make_telemetry)
        """The metrics that clients push."""
        self.moves: Lazy[ReplicaMoves] = Lazy(self._make_moves)
        """Moves of partitions between log dirs."""
        self.tokens: DelegationTokens | None = None
        """The delegation tokens (runtime/security/delegation_tokens.py); None if
        delegation.token.secret.key is not set.
        """
        self.listener_settings = ListenerSettings(config, self._configs)
        self.scram: Lazy[ScramUsers] = Lazy(self.make_scram)
        self.security: Security | None = self._make_security(server)
        """TLS and SASL; None if all listeners are PLAINTEXT."""
        self.peers: Lazy[Peers] = Lazy(self._make_peers)
        """The connections to other brokers."""
        self.commits = FsyncBatcher(loop, report)
        self.table.call_threadsafe = loop.call_soon_threadsafe
        self.table.on_unsynced = self.commits.sync

    @property
    @abstractmethod
    def shares_store(self) -> bool:
        """Whether other processes use the store, too. If so, it can be unreachable for a while."""

    @property
    def cluster_id(self) -> str:
        """The cluster's id, as in Metadata."""
        return self.image.cluster_id

    @property
    def image(self) -> MetadataImage:
        """The metadata image."""
        return self.metadata.image

    async def loaded(self, api_key: int) -> None:
        """Wait until the modules that serve an API are loaded."""
        await self._server.loaded(api_key)

    def open(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Open the store and the logs. ``endpoints`` are the addresses for clients. Blocks. May be
        called again after StoreUnavailableError.
        """
        paths: list[str] = list(self.config["log.dirs"])
        if not self.log_manager.is_open:
            self.log_manager.open(paths)
            grow_descriptor_table(2 * len(self.log_manager.places()))  # logs, and as many sockets
            self.log_dir_failures.watch()
        self.open_parts(endpoints)

    @abstractmethod
    def open_parts(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Open the store, and create the parts that depend on it."""

    def check_rights(self) -> None:
        """From now on, check the rights of clients, if authorizer.class.name is set. Blocks."""
        if self.config["authorizer.class.name"]:
            from kstore.broker.runtime.security.acl_store import AclStore, open_authorizer
            from kstore.broker.runtime.security.audit_log import AuditLog

            authorizer = open_authorizer(self.config, self.store)
            authorizer.on_denied = AuditLog(self.loop, authorizer).denied
            self.authorizer = self.plane.authorizer = authorizer
            self.acls = AclStore(
                self.node, self.store, self.turns, authorizer, self.plane.forget_answers,
                shared=self.shares_store,
            )  # fmt: skip

    def open_tokens(self) -> None:
        """Read the delegation tokens, and delete those that have expired. Blocks; StoreError."""
        if self.config["delegation.token.secret.key"]:
            from kstore.broker.runtime.security.delegation_tokens import DelegationTokens

            if self.tokens is not None:
                self.tokens.close()  # an earlier attempt's
            self.tokens = DelegationTokens(
                self.node, self.store, lambda: self.membership.is_controller
            )
            self.tokens.load()
            self.tokens.start()

    def _admit_transactional(
        self,
        connection: Connection,
        transactional_id: str,
        producer: tuple[int, int],
        version: int,
        requested: list[tuple[Partition, int]],
    ) -> dict[Partition, int] | None:
        produce = self.transactional_produce()
        return produce.admit(connection, transactional_id, producer, version, requested)

    def _make_peers(self) -> Peers:
        from kstore.broker.runtime.peers.peers import Peers

        peers = Peers(self.node, self.metadata, self.security)
        peers.on_closed.append(self.membership.suspect)
        self.plane.look_at_peers = peers.check_connections
        return peers

    def _make_moves(self) -> ReplicaMoves:
        from kstore.broker.runtime.log_dirs.replica_moves import ReplicaMoves

        return ReplicaMoves(self.node, self.table, self.log_manager)

    def _promise_coordinators(self) -> None:
        self.groups: Lazy[GroupCoordinator] = Lazy(self._make_groups, lambda made: made.start())
        self.share_states: Lazy[ShareGroupStates] = Lazy(self._make_share_states)
        """Stores the state of share-partitions."""
        self.partition_ends: Lazy[PartitionEnds] = Lazy(self._make_partition_ends)
        self.partition_lookup: Lazy[PartitionLookup] | None = None
        """In a cluster, finds partitions that other brokers have created (runtime/groups)."""
        self.transactions: Lazy[TransactionCoordinator] = Lazy(
            self._make_transactions, lambda made: made.start()
        )
        self.share_coordinator: Lazy[ShareCoordinator] = Lazy(
            self._make_share_coordinator, lambda made: made.start()
        )
        self.persister: Lazy[CoordinatorPersister] = Lazy(self._make_persister)
        """The Persister of share-partitions' state (runtime/shares)."""
        self.share_partitions: Lazy[SharePartitionManager] = Lazy(self._make_share_partitions)
        """The share-partitions that this broker leads."""
        self.partition_writer: Lazy[PartitionWriter] = Lazy(self._make_partition_writer)
        self.auto_topic_creation: Lazy[AutoTopicCreationManager] = Lazy(
            self._make_auto_topic_creation
        )
        self.internal_topics: Lazy[InternalTopics] = Lazy(self._make_internal_topics)
        self.admission: Lazy[TransactionAdmission] = Lazy(self.make_admission)
        """Asks transaction coordinators on behalf of producers."""
        self.transactional_produce: Lazy[TransactionalProduce] = Lazy(self._make_produce)
        self.markers: Lazy[Markers] = Lazy(self._make_markers)
        self.producer_ids: Lazy[ProducerIds] = Lazy(self._make_producer_ids)

    def _make_partition_writer(self) -> PartitionWriter:
        from kstore.broker.runtime.coordinators.partition_writer import PartitionWriter

        return PartitionWriter(self.node, self.table, self.commits)

    @abstractmethod
    def coordinator_topic(self, name: str) -> CoordinatorTopic:
        """The topic of a coordinator, as this broker serves it."""

    def _make_groups(self) -> GroupCoordinator:
        from kstore.broker.runtime.groups.group_coordinator import GroupCoordinator

        groups = GroupCoordinator(
            self.node,
            self.coordinator_topic(OFFSETS_TOPIC),
            self.partition_writer(),
            self.configs,
            Lazy(self._make_expansion_gates),
            self.authorizer,
        )
        groups.has_ended = lambda *what: self.markers().has_ended(*what)
        return groups

    def _make_share_states(self) -> ShareGroupStates:
        from kstore.broker.runtime.groups.share_states import ShareGroupStates

        return ShareGroupStates(self.groups, self.persister)

    def _make_partition_ends(self) -> PartitionEnds:
        from kstore.broker.runtime.groups.partition_ends import PartitionEnds

        return PartitionEnds(self.node, self.metadata, self.table, self.peers)

    def _make_expansion_gates(self) -> ExpansionGates:
        from kstore.broker.runtime.groups.expansion_gates import ExpansionGates

        return ExpansionGates(
            self.node,
            self.store,
            self.metadata,
            self.table,
            self.peers,
            lambda work: self.groups().spawn(work),
        )

    def _make_auto_topic_creation(self) -> AutoTopicCreationManager:
        from kstore.broker.runtime.topics.auto_topic_creation import AutoTopicCreationManager

        return AutoTopicCreationManager(self.node, self.topics)

    def _make_internal_topics(self) -> InternalTopics:
        from kstore.broker.runtime.topics.internal_topics import InternalTopics

        return InternalTopics(self.node, self.topics)

    def _make_transactions(self) -> TransactionCoordinator:
        from kstore.broker.runtime.transactions.transaction_coordinator import (
            TransactionCoordinator,
        )

        return TransactionCoordinator(
            self.node,
            self.coordinator_topic(TRANSACTION_TOPIC),
            self.partition_writer(),
            self.producer_ids(),
            self.make_marker_writer(),
        )

    def _make_share_coordinator(self) -> ShareCoordinator:
        from kstore.broker.runtime.shares.share_coordinator import ShareCoordinator

        topic = self.coordinator_topic(SHARE_STATE_TOPIC)
        return ShareCoordinator(self.node, topic, self.partition_writer())

    def _make_persister(self) -> CoordinatorPersister:
        from kstore.broker.runtime.shares.coordinator_persister import CoordinatorPersister

        return CoordinatorPersister(self.node, self.share_coordinator, self.peers)

    def _make_share_partitions(self) -> SharePartitionManager:
        from kstore.broker.runtime.shares.share_partition_manager import SharePartitionManager

        return SharePartitionManager(
            self.node, self.table, self.configs, self.persister, self.unpacking
        )

    @abstractmethod
    def make_marker_writer(self) -> MarkerWriter:
        """Create the writer of the markers that end transactions."""

    def _make_markers(self) -> Markers:
        from kstore.broker.runtime.transactions.markers import Markers

        return Markers(self.node, self.metadata, self.partition_writer(), self._offsets_ended)

    def _offsets_ended(self, index: int, producer_id: int, committed: bool) -> None:
        """Called when the marker of a transaction was appended to a partition of
        __consumer_offsets.
        """
        if self.groups.made is not None:
            self.groups.made.transaction_ended(index, producer_id, committed=committed)

    @abstractmethod
    def make_admission(self) -> TransactionAdmission:
        """Create the part that asks transaction coordinators."""

    def _make_produce(self) -> TransactionalProduce:
        from kstore.broker.runtime.transactions.produce import TransactionalProduce

        return TransactionalProduce(self.node, self.admission)

    def _make_producer_ids(self) -> ProducerIds:
        from kstore.broker.runtime.transactions.producer_ids import ProducerIds

        return ProducerIds(self.store, self.node_id, self.run_blocking)

    def _make_unpacking(self) -> Unpacking:
        from kstore.broker.runtime.log_dirs.unpacking import Unpacking

        return Unpacking(self.loop, self.report)

    def _configs(self) -> DynamicConfigs | None:
        """The dynamic configs; None before the store is open."""
        return self.configs if hasattr(self, "configs") else None

    def _make_features(self) -> FinalizedFeatures:
        from kstore.broker.runtime.metadata.features import FinalizedFeatures, supported_features

        supported = supported_features(
            self._server.served_versions, sends_epochs=self.config.sends_epochs
        )
        return FinalizedFeatures(self.store, supported)

    def _make_quotas(self) -> ClientQuotaManager:
        from kstore.broker.runtime.quotas.client_quota_manager import ClientQuotaManager

        return ClientQuotaManager(self.node, self.store, self.plane, self.metadata, self.authorizer)

    @property
    def throttles(self) -> ClientThrottles | None:
        """Applies the quotas of clients; None while there are none."""
        made = self.quotas.made
        return None if made is None else made.throttles

    def _make_telemetry(self) -> Telemetry:
        from kstore.broker.runtime.telemetry.client_metrics import Telemetry

        return Telemetry()

    @abstractmethod
    def make_scram(self) -> ScramUsers:
        """Create the source of SCRAM credentials."""

    def _make_security(self, server: RequestServer) -> Security | None:
        if all(listener.protocol == "PLAINTEXT" for listener in self.config.listeners):
            return None
        from kstore.broker.runtime.security.security import Security

        return Security(
            self.node, self.listener_settings, self.scram, server.dispatch,
            has_peers=self.shares_store,
        )  # fmt: skip

    def _unpack(self, connection: Connection, jobs: list[Job]) -> None:
        self.unpacking().ask(connection, jobs)

    async def leave(self) -> None:
        """Leave the cluster, before the connections end."""
        await self.membership.close()

    def close(self) -> None:
        """Flush and close logs and store; the next start needs no recovery."""
        if self.security is not None:
            self.security.close()
        if self.tokens is not None:
            self.tokens.close()
        if self.peers.made is not None:
            self.peers.made.close()
        if self.unpacking.made is not None:
            self.unpacking.made.close()
        self.node.close()
        self.holds.close()
        self.commits.close()
        self.descriptors.close()
        self.log_manager.close()
        if hasattr(self, "store"):  # not after a failed start
            self.store.close()


def _plane(
    config: BrokerConfig,
    table: PartitionTable,
    server: RequestServer,
    loop: asyncio.AbstractEventLoop,
    report: Report,
) -> DataPlane:
    sessions: FetchSessionCache[FetchSession] = FetchSessionCache(
        config["max.incremental.fetch.session.cache.slots"],
        lambda: int.from_bytes(urandom(4)) >> 1,  # tokens must be hard to guess
    )
    durable = config["kstore.flush.policy"] == "always"
    return DataPlane(
        server,
        table,
        ProducePath(table, report, durable=durable, call_later=loop.call_later),
        FetchPath(table, sessions, loop.call_later, report, max_bytes=config["fetch.max.bytes"]),
        max_request_bytes=config["socket.request.max.bytes"],
        max_queued_bytes=config["queued.max.request.bytes"],
        max_elements=config["kstore.request.max.elements"],
        watch=getattr(loop, "watch", None),
    )
