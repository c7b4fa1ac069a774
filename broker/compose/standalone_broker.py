"""The parts of a single broker: it has its own store, and leads all partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.broker.compose.broker import Broker
from kstore.broker.coordination import znodes
from kstore.broker.coordination.stores import open_own_store
from kstore.broker.runtime.membership.membership import StandaloneMembership
from kstore.broker.runtime.metadata.cache import MetadataCache
from kstore.broker.runtime.metadata.dynamic_configs import DynamicConfigs
from kstore.broker.runtime.topics.standalone_topics import StandaloneTopics
from kstore.broker.runtime.topics.topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from kstore.broker.state.metadata.image import BrokerImage, Endpoint, MetadataImage

if TYPE_CHECKING:
    from uuid import UUID

    from kstore.broker.runtime.coordinators.topic import CoordinatorTopic
    from kstore.broker.runtime.security.scram_users import ScramUsers
    from kstore.broker.runtime.transactions.admission import TransactionAdmission
    from kstore.broker.runtime.transactions.markers import MarkerWriter
    from kstore.broker.state.metadata.retirement import Retirement

__all__ = ["StandaloneBroker"]

QUOTA_FOLDERS = ("/config/users", "/config/clients", "/config/ips")


class StandaloneBroker(Broker):
    """A single broker."""

    shares_store = False

    def open_parts(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Open the store in the first log dir, and all topics."""
        self.store = open_own_store(self.config["log.dirs"][0])
        znodes.prepare(self.store)
        self.configs = DynamicConfigs(self.config, self.store, self.run_blocking, self.report)
        self.configs.load()
        self.check_rights()
        self.open_tokens()
        myself = BrokerImage(self.node_id, endpoints, self.config["broker.rack"])
        protocols = None if self.security is None else self.security.protocols
        znodes.register_broker(self.store, myself, self.now_ms(), protocols)
        registered = self.store.stat(f"{znodes.BROKER_IDS}/{self.node_id}")
        self.membership = StandaloneMembership(
            self.node_id, 0 if registered is None else registered.czxid
        )
        image = MetadataImage(znodes.cluster_id(self.store)).with_broker(myself, controller=True)
        self.metadata = MetadataCache(image, self.plane.forget_answers)
        self.topics = self._own_topics = StandaloneTopics(
            self.node, self.store, self.metadata, self.log_manager,
            self.descriptors.refuse_logs, _Groups(self),
        )  # fmt: skip
        self.topics.load()
        self.log_dir_failures.on_partition = self.log_manager.fail
        self.log_dir_failures.on_offline = self.topics.take_offline
        self.configs.when_changed = self.topics.take_over_defaults
        if any(self.store.exists(path) for path in QUOTA_FOLDERS):
            self.quotas()

    def coordinator_topic(self, name: str) -> CoordinatorTopic:
        """A topic with all of its partitions on this broker."""
        from kstore.broker.runtime.coordinators.topic import StandaloneTopic

        return StandaloneTopic(name, self.node, self.metadata, self.topics)

    def make_marker_writer(self) -> MarkerWriter:
        """A writer that appends markers to this broker's logs."""
        from kstore.broker.runtime.transactions.markers import LocalMarkers

        return LocalMarkers(self.markers(), durable=self.partition_writer().durable)

    def make_admission(self) -> TransactionAdmission:
        """A TransactionAdmission that asks this broker's coordinator."""
        from kstore.broker.runtime.transactions.admission import LocalAdmission

        return LocalAdmission(self.transactions, self.plane.produce)

    def make_scram(self) -> ScramUsers:
        """The credentials in the store."""
        from kstore.broker.runtime.security.scram_users import StoredScramUsers

        return StoredScramUsers(self.store, self.tokens)

    async def leave(self) -> None:
        """Leave unfinished changes of topics to the next start."""
        self._own_topics.close()
        await super().leave()


class _Groups:
    """Connects changes of topics to this broker's groups. Without __consumer_offsets there are no
    groups. In a cluster each coordinator sees deletions itself.
    """

    def __init__(self, broker: StandaloneBroker) -> None:
        self._broker = broker

    async def behind(
        self, name: str, topic_id: UUID, requested: Retirement
    ) -> tuple[list[int], list[str]]:
        """See GroupsOfTopics."""
        return await self._broker.groups().behind(name, topic_id, requested)

    async def forget(self, name: str, topic_id: UUID) -> None:
        """See GroupsOfTopics."""
        broker = self._broker
        if name == OFFSETS_TOPIC:
            if broker.groups.made is not None:
                await broker.groups.made.close()
                broker.groups.forget()
        elif OFFSETS_TOPIC in broker.image.topics:
            await broker.groups().forget_topic(name)
        if name == SHARE_STATE_TOPIC:
            if broker.share_coordinator.made is not None:
                await broker.share_coordinator.made.close()
                broker.share_coordinator.forget()
        elif SHARE_STATE_TOPIC in broker.image.topics:
            broker.share_coordinator().forget_topic(topic_id)

    async def forget_partitions(self, name: str, first: int) -> None:
        """See GroupsOfTopics."""
        if OFFSETS_TOPIC in self._broker.image.topics:
            await self._broker.groups().forget_topic(name, first)
