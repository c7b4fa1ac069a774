"""The data planes of several brokers on real sockets. The test plays the controller."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kstore._fast.broker.fetch_path import FetchPath
from kstore._fast.broker.partition import Partition, TopicEntry
from kstore._fast.broker.partition_table import PartitionTable
from kstore._fast.broker.produce_path import ProducePath
from kstore._fast.network.connection import Connection
from kstore._fast.network.data_plane import DataPlane
from kstore._fast.record.builder import build_batch
from kstore.broker.api import API_TABLE
from kstore.broker.api.logs.list_offsets import handle_list_offsets
from kstore.broker.runtime.dir_threads import DirThreads
from kstore.broker.runtime.lazy import Lazy
from kstore.broker.runtime.log_dirs.fsync_batch import FsyncBatcher
from kstore.broker.runtime.membership.membership import StandaloneMembership
from kstore.broker.runtime.metadata.cache import MetadataCache
from kstore.broker.runtime.peers.peers import Peers
from kstore.broker.runtime.replication.fetchers import Fetchers
from kstore.broker.runtime.replication.leader_throttle import LeaderThrottle
from kstore.broker.runtime.replication.replica_throttles import ReplicaThrottles
from kstore.broker.runtime.replication.throttled_replicas import ThrottledReplicas
from kstore.broker.state.metadata.image import BrokerImage, Endpoint, MetadataImage
from kstore.broker.state.replication.fetch_session_cache import FetchSessionCache
from kstore.env import Env
from kstore.log import open_log_dir
from kstore.net.transport import new_loop
from kstore.protocol.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kstore.protocol.registry import APIS
from kstore.types import TopicPartition

TOPIC = "t"
TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
LIST_OFFSETS = 2
Ids = tuple[int, ...]
CONFIG: dict[str, Any] = {
    "inter.broker.listener.name": None,
    "replica.fetch.wait.max.ms": 500,
    "replica.fetch.min.bytes": 1,
    "replica.fetch.max.bytes": 1 << 20,
    "replica.fetch.response.max.bytes": 10 << 20,
    "replica.fetch.backoff.ms": 100,
    "replica.socket.timeout.ms": 30_000,
    "kstore.flush.policy": "interval",
    "replication.quota.window.num": 11,
    "replication.quota.window.size.seconds": 1,
}


class Server:
    """What a data plane needs from its broker; it answers ListOffsets."""

    def __init__(self, node: Node) -> None:
        loop = node.loop
        self.call_soon = loop.call_soon
        self.add_writer = loop.add_writer
        self.remove_writer = loop.remove_writer
        self.report = node.report
        self._node = node

    def admit(self, connection: Any) -> str | None:
        return None

    def lost(self, connection: Any) -> None: ...

    def failed(self, connection: Any, problem: Exception) -> None:
        raise problem

    def dispatch(
        self, connection: Any, api_key: int, version: int, correlation_id: int,
        client_id: bytes | None, body: bytes,
    ) -> Any:  # fmt: skip
        if api_key == ApiVersionsRequest.API_KEY:
            return ApiVersionsResponse().encode(version)
        assert api_key == LIST_OFFSETS
        request: Any = APIS[api_key].request.decode(body, version)
        broker: Any = SimpleNamespace(table=self._node.table)
        ctx: Any = SimpleNamespace(api_version=version, extended=connection.extended)
        return handle_list_offsets(broker, request, ctx).encode(version)


class Node:
    """The log dir, data plane and fetchers of one broker."""

    def __init__(
        self, node_id: int, folder: Path, metadata: MetadataCache, partitions: int = 1,
        **config: Any,
    ) -> None:  # fmt: skip
        self.node_id = node_id
        self.folder = folder
        self.metadata = metadata
        self.config = CONFIG | config
        self.partitions = partitions
        self.reports: list[str] = []
        self.membership = StandaloneMembership(node_id, 0)
        self.env: Env | None = None
        """For its logs; None: the machine."""
        self.alive = False
        self.port = 0

    async def start(self) -> None:
        """Open the existing logs and listen; it neither leads nor follows yet."""
        self.loop = asyncio.get_running_loop()
        self.dir = open_log_dir(
            str(self.folder), flush=self.config["kstore.flush.policy"], env=self.env
        )
        self.dir.replicated = True
        self.table = PartitionTable(self.node_id, self.loop.call_soon)
        server = Server(self)
        sessions: FetchSessionCache[Any] = FetchSessionCache(10, iter(range(1, 1 << 30)).__next__)
        self.plane = DataPlane(
            server, self.table, ProducePath(self.table, self.report),
            FetchPath(
                self.table, sessions, self.loop.call_later, self.report, max_bytes=55 << 20
            ),
            max_request_bytes=1 << 20, max_queued_bytes=-1,
        )  # fmt: skip
        for key, row in API_TABLE.items():
            self.plane.serve_api(
                key, row.min_version, row.max_version, APIS[key].flexible_from, row.cached
            )
        entry = TopicEntry(TOPIC.encode(), TOPIC_ID.bytes)
        self.table.add_topic(entry)
        for index in range(self.partitions):
            log = self.dir.log(TOPIC, index, topic_id=TOPIC_ID)
            self.table.add_partition(Partition(entry, index, log, leader_id=-1, leader_epoch=-1))
            self.partition(index).online = False
        self.commits = FsyncBatcher(self.loop, self.report)
        self.dirs = DirThreads(self.loop, self.report)
        self.peers = Lazy(lambda: Peers(self.as_node, self.metadata, None))
        self.configs: Any = SimpleNamespace(cluster={}, brokers={})
        self.fetchers = Fetchers(
            self.as_node, self.membership, self.peers, self.commits,
            self._throttles(),
        )  # fmt: skip
        protocol: Any = lambda: Connection(self.plane, "PLAINTEXT")  # noqa: E731
        self._acceptor = await self.loop.create_server(protocol, "127.0.0.1", self.port)
        self.port = self._acceptor.sockets[0].getsockname()[1]
        self.metadata.publish(
            self.image.with_broker(
                BrokerImage(self.node_id, (Endpoint("PLAINTEXT", "127.0.0.1", self.port),))
            )
        )
        self.alive = True

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    @property
    def as_node(self) -> Any:
        """This object, where the broker's process is expected."""
        return self

    def _throttles(self) -> ReplicaThrottles:
        followers, leaders = (
            ThrottledReplicas(side, self.as_node, self.configs, self.metadata)
            for side in ("follower", "leader")
        )
        log_manager: Any = SimpleNamespace(logs=self._logs)
        throttle = Lazy(lambda: LeaderThrottle(self.loop, leaders, log_manager, self.plane))
        return ReplicaThrottles(self.loop, followers, leaders, throttle)

    def _logs(self) -> list[tuple[Partition, Any]]:
        found = [self.partition(index) for index in range(self.partitions)]
        return [(partition, partition.log) for partition in found]

    def report(self, sentence: str, about: str = "") -> None:
        self.reports.append(sentence)

    def partition(self, index: int = 0) -> Partition:
        found = self.table.partition(TOPIC.encode(), index)
        assert found is not None
        return found

    def stop(self) -> None:
        self._end()
        self.dir.close()

    def kill(self) -> None:
        """Stop as after kill -9: the files stay, and what was only in memory is lost."""
        self._end()
        crashed = self.folder.with_name(self.folder.name + "-crashed")
        shutil.copytree(
            self.folder, crashed, ignore=shutil.ignore_patterns(".lock", ".kstore.mdb*")
        )
        self.dir.close()
        shutil.rmtree(self.folder)
        crashed.rename(self.folder)

    def _end(self) -> None:
        self.alive = False
        self._acceptor.close()
        self.fetchers.close()
        self.dirs.close()
        self.peers().close()
        for connection in self.plane.open_connections():
            connection.close()
        self.commits.close()
        for index in range(self.partitions):
            self.partition(index).follow(-1, self.partition(index).leader_epoch)

    # ---- what the controller says ----

    async def settle(self, index: int = 0) -> None:
        """Before a role in another epoch: end copying, and wait until the log is not being cut."""
        self.fetchers.stop(TopicPartition(TOPIC, index))
        await self.fetchers.settle(TopicPartition(TOPIC, index))

    def lead(self, epoch: int, version: int, replicas: Ids, isr: Ids, index: int = 0) -> None:
        self.fetchers.stop(TopicPartition(TOPIC, index))
        self.partition(index).lead(epoch, version, replicas, isr)

    def follow(self, leader_id: int, epoch: int, index: int = 0) -> None:
        self.partition(index).follow(leader_id, epoch)
        self.fetchers.follow(TopicPartition(TOPIC, index), self.partition(index), leader_id, epoch)

    # ---- records ----

    def append(self, *values: bytes, index: int = 0) -> int:
        """Append a batch as the leader and return its first offset."""
        code, base, *_ = self.partition(index).append_batches(
            bytearray(build_batch(list(values), timestamp=1)), origin=0
        )
        assert code == 0
        return base

    def contents(self, index: int = 0, start: int | None = None, end: int | None = None) -> bytes:
        """All batches from the log start (or an offset) to the log end (or an offset)."""
        log = self.partition(index).log
        found = bytearray()
        offset = log.log_start_offset if start is None else start
        end = log.log_end_offset if end is None else end
        while offset < end:
            data, offset = log.core.read(offset, end, 1 << 20)
            found += data
        return bytes(found)


def new_image() -> MetadataCache:
    return MetadataCache(MetadataImage("cluster"), lambda: None)


def run(story: Callable[[], Awaitable[None]], timeout_s: float = 60) -> None:
    """Run a scenario on a loop of its own."""
    loop = new_loop()
    try:
        loop.run_until_complete(asyncio.wait_for(story(), timeout_s))
    finally:
        loop.close()
