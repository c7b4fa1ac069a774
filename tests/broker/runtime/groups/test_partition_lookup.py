"""Commits for partitions that a member learned about first are accepted, for others refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar
from uuid import UUID, uuid4

import pytest

from kstore.broker.api.groups.classic import handle_delete_groups, handle_leave_group
from kstore.broker.api.groups.offsets import handle_offset_commit, handle_offset_delete
from kstore.broker.api.groups.streams import handle_streams_group_heartbeat
from kstore.broker.api.transactions.transactions import handle_txn_offset_commit
from kstore.broker.coordination import znodes
from kstore.broker.coordination.memory_store import MemoryStore
from kstore.broker.coordination.store import StoreUnavailableError
from kstore.broker.runtime.groups import partition_lookup
from kstore.broker.runtime.groups.partition_lookup import NamedPartition, PartitionLookup
from kstore.broker.runtime.lazy import Lazy
from kstore.broker.runtime.transactions.markers import Markers
from kstore.broker.state.metadata.image import MetadataImage, PartitionImage, TopicImage
from kstore.config.group_configs import GROUP_CONFIGS
from kstore.errors import ErrorCode
from kstore.protocol.schema import ZERO_UUID
from tests.beside.waiting import turns
from tests.broker.runtime.coordinators.cluster_host import GROUPS, HERE, Host, run
from tests.broker.runtime.groups.group_requests import committed, stable_member
from tests.plain_messages import Ask
from tests.reference.streams_members import StreamsClient, subtopology, topology

OLD = PartitionImage(HERE, 0, (HERE,), (HERE,))
LAST_BY_NAME, FIRST_BY_ID, TRANSACTIONAL = 9, 10, 3
ABSENT, LATER = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
Row = tuple[str, UUID, int]
T = TypeVar("T")


class Cluster:
    """The store of a cluster, and a broker that has no metadata from the controller yet."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.store = MemoryStore()
        znodes.prepare(self.store)
        self.silent = False
        """The controller tells nothing."""
        self.store_is_away = False
        self.config = {
            "transaction.partition.verification.enable": False,
            "group.coordinator.rebalance.protocols": ["classic", "consumer", "streams"],
        }
        self.features = lambda: SimpleNamespace(levels={"streams.version": 1})
        self.authorizer = None
        given: Any = self
        self.groups = host.groups
        self.markers = Lazy(lambda: Markers(host, host, host.writer, lambda *ended: None))
        self.partition_lookup = Lazy(lambda: PartitionLookup(given, given, given, given))
        self.new: TopicImage | None = None

    @property
    def image(self) -> MetadataImage:
        return self.host.image

    def make(self, name: str, count: int) -> TopicImage:
        """Create a topic in the store only."""
        topic = TopicImage(name, uuid4(), (OLD,) * count, {})
        return znodes.create_topic(self.store, topic)

    def tell(self, *topics: TopicImage) -> None:
        """Deliver UpdateMetadata."""
        epoch = max(row.partition_epoch for topic in topics for row in topic.partitions)
        self.host.image = self.host.image.with_topics(*topics).with_partition_epoch(epoch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def run_blocking(self, call: Callable[[], Any]) -> Any:
        if self.store_is_away:
            raise StoreUnavailableError("it is away")
        await asyncio.sleep(0)
        return call()

    async def wait_until(self, check: Callable[[], bool], timeout_s: float) -> bool:
        while not check():
            if self.silent:
                return False
            await asyncio.sleep(0)
        await turns()  # earlier waiters continue before new ones
        return True

    async def serve(self) -> None:
        """Become the coordinator of the groups."""
        self.host.lead(GROUPS)
        self.host.places[GROUPS].advance()
        await self.groups().wait_loaded()
        self.groups().has_ended = self.markers().has_ended
        self.tell(self.make("heard-of", 1))

    def begin(
        self, version: int, *rows: Row, offset: int = 5, member_id: str = ""
    ) -> asyncio.Task[list[int]]:
        """Commit and return the error codes. A member commits in generation 1."""
        return asyncio.get_running_loop().create_task(
            self._commit(version, rows, offset, member_id)
        )

    async def ends(self, asking: Awaitable[T]) -> T:
        """Await something while followers copy what is written."""
        waiting = asyncio.ensure_future(asking)
        while not waiting.done():
            self.host.places[GROUPS].advance()
            await asyncio.sleep(0)
        return await waiting

    async def _commit(
        self, version: int, rows: tuple[Row, ...], offset: int, member_id: str
    ) -> list[int]:
        topics = [
            {"name": name, "partitions": [{"partition_index": index, "committed_offset": offset}]}
            | ({} if version == TRANSACTIONAL else {"topic_id": topic_id})
            for name, topic_id, index in rows
        ]
        broker: Any = self
        ctx: Any = SimpleNamespace(
            api_version=version, client_id="c", client_host="h", extended=False
        )
        answer: Any
        if version == TRANSACTIONAL:
            request = Ask.TxnOffsetCommit(group_id="g", topics=topics, producer_id=7)
            answer = handle_txn_offset_commit(broker, request, ctx)
        else:
            member = {"member_id": member_id, "generation_id_or_member_epoch": 1}
            request = Ask.OffsetCommit(group_id="g", topics=topics, **(member if member_id else {}))
            answer = handle_offset_commit(broker, request, ctx)
        if isinstance(answer, Awaitable):
            answer = await self.ends(answer)
        return [row.error_code for topic in answer.topics for row in topic.partitions]

    async def committed(self, topic: str, index: int) -> int | None:
        return await committed(self.groups(), topic, index)


def in_cluster(path: Path, story: Callable[[Cluster], Awaitable[None]]) -> None:
    run(path, lambda host: story(Cluster(host)))


@pytest.mark.parametrize("version", [LAST_BY_NAME, FIRST_BY_ID, TRANSACTIONAL])
@pytest.mark.parametrize("grows", [True, False], ids=["the topic has grown", "the topic is new"])
def test_a_commit_waits_until_the_coordinator_has_heard_of_its_partition(
    tmp_path: Path, version: int, grows: bool
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.serve()
        topic = cluster.make("new", 3)
        if grows:
            cluster.tell(topic._replace(partitions=topic.partitions[:1]))
        commit = cluster.begin(version, ("new", topic.topic_id, 2))
        await turns()
        assert not commit.done()
        cluster.tell(topic)
        assert await commit == [ErrorCode.NONE]
        if version != TRANSACTIONAL:  # a transactional offset is still pending
            assert await cluster.committed("new", 2) == 5

    in_cluster(tmp_path, story)


@pytest.mark.parametrize("version", [LAST_BY_NAME, FIRST_BY_ID, TRANSACTIONAL])
def test_a_commit_in_a_partition_that_does_not_exist_is_refused(
    tmp_path: Path, version: int
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.serve()
        topic = cluster.make("new", 1)
        cluster.tell(topic)
        no_id = ErrorCode.UNKNOWN_TOPIC_ID if version == FIRST_BY_ID else ABSENT
        rows = [
            ("new", topic.topic_id, 1), ("new", topic.topic_id, -1), ("absent", UUID(int=9), 0),
        ]  # fmt: skip
        for row, code in zip(rows, (ABSENT, ABSENT, no_id), strict=True):
            assert await cluster.begin(version, row) == [code]
        both = await cluster.begin(version, rows[0], ("new", topic.topic_id, 0))
        assert both == [ABSENT, ErrorCode.NONE]

    in_cluster(tmp_path, story)


@pytest.mark.parametrize("version", [LAST_BY_NAME, FIRST_BY_ID, TRANSACTIONAL])
@pytest.mark.parametrize("silent", ["the controller", "the store"])
def test_a_commit_is_to_be_repeated_where_the_coordinator_can_not_know(
    tmp_path: Path, version: int, silent: str
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.serve()
        topic = cluster.make("new", 2)
        cluster.tell(topic._replace(partitions=topic.partitions[:1]))
        cluster.silent = silent == "the controller"
        cluster.store_is_away = silent == "the store"
        rows = [("new", topic.topic_id, 1), ("new", topic.topic_id, 0)]
        assert sorted(await cluster.begin(version, *rows)) == [ErrorCode.NONE, LATER]

    in_cluster(tmp_path, story)


@pytest.mark.parametrize("version", [LAST_BY_NAME, FIRST_BY_ID, TRANSACTIONAL])
def test_who_does_not_coordinate_the_group_says_so_whatever_it_has_heard_of(
    tmp_path: Path, version: int
) -> None:
    async def story(cluster: Cluster) -> None:
        topic = cluster.make("new", 2)
        rows = [("new", topic.topic_id, 1), ("absent", UUID(int=9), 0)]
        assert await cluster.begin(version, *rows) == [ErrorCode.NOT_COORDINATOR] * 2

    in_cluster(tmp_path, story)


def test_a_commit_does_not_overtake_one_that_waits(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.serve()
        topic = cluster.make("new", 1)
        first = cluster.begin(LAST_BY_NAME, ("new", topic.topic_id, 0), offset=5)
        await turns()
        cluster.tell(topic)
        second = cluster.begin(LAST_BY_NAME, ("new", topic.topic_id, 0), offset=6)
        assert await second == await first == [ErrorCode.NONE]
        assert await cluster.committed("new", 0) == 6
        assert not cluster.partition_lookup().has_line("g")

    in_cluster(tmp_path, story)


def test_commits_that_come_together_keep_their_order(tmp_path: Path) -> None:
    """Also if the first request has not begun to wait when the second one arrives."""

    async def story(cluster: Cluster) -> None:
        await cluster.serve()
        topic = cluster.make("new", 2)
        known = topic._replace(partitions=topic.partitions[:1])
        cluster.tell(known)
        rows = [("new", topic.topic_id, index) for index in (0, 1)]
        first = cluster.begin(LAST_BY_NAME, *rows, offset=5)
        second = cluster.begin(LAST_BY_NAME, rows[0], offset=6)
        await turns()
        cluster.tell(topic)
        assert (await first, await second) == ([ErrorCode.NONE] * 2, [ErrorCode.NONE])
        assert await cluster.committed("new", 0) == 6

    in_cluster(tmp_path, story)


def test_commits_do_not_wait_for_ever_behind_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.serve()
        topic = cluster.make("new", 1)
        monkeypatch.setattr(partition_lookup, "LINE_S", 0.05)
        commits = [cluster.begin(LAST_BY_NAME, ("new", topic.topic_id, 0)) for _ in range(3)]
        assert [await commit for commit in commits] == [[LATER]] * 3
        assert not cluster.partition_lookup().has_line("g")

    in_cluster(tmp_path, story)


def test_a_look_up_that_hangs_is_the_only_one(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        lookup, topic = cluster.partition_lookup(), cluster.make("new", 1)
        asked, answered = 0, asyncio.Event()

        async def hanging(call: Callable[[], Any]) -> Any:
            nonlocal asked
            asked += 1
            await answered.wait()
            return call()

        cluster.run_blocking = hanging  # type: ignore[method-assign]
        hears = [
            asyncio.ensure_future(lookup.await_known([NamedPartition("new", ZERO_UUID, 0)]))
            for _ in range(3)
        ]
        await turns()
        assert asked == 1
        hears[0].cancel()
        await turns()
        assert asked == 1, "what nobody waits for any more still runs"
        answered.set()
        cluster.tell(topic)
        assert await asyncio.gather(*hears[1:]) == [True, True]
        assert asked == 3

    in_cluster(tmp_path, story)


@pytest.mark.parametrize("name", ["", "..", "a//b", "new/partitions", "x" * 5000, "a\x01"])
def test_names_that_no_topic_can_have_are_not_looked_up(tmp_path: Path, name: str) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.serve()
        topic = cluster.make("new", 1)
        cluster.tell(topic)
        rows = [(name, ZERO_UUID, 0), ("new", topic.topic_id, 0)]
        for version in (LAST_BY_NAME, TRANSACTIONAL):
            assert await cluster.begin(version, *rows) == [ABSENT, ErrorCode.NONE]

    in_cluster(tmp_path, story)


def test_a_topic_that_was_made_again_is_another_one(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        lookup, old = cluster.partition_lookup(), cluster.make("new", 1)
        cluster.tell(old)
        znodes.delete_topic(cluster.store, old)
        new = cluster.make("new", 2)
        gone = NamedPartition("", old.topic_id, 1)
        assert await lookup.await_known([gone]), "it does not exist: nothing is waited for"
        cluster.silent = True
        assert not await lookup.await_known([NamedPartition("", new.topic_id, 1)])
        assert not await lookup.await_known([NamedPartition("new", ZERO_UUID, 1)])
        cluster.tell(new)
        assert await lookup.await_known([NamedPartition("", new.topic_id, 1), gone])

    in_cluster(tmp_path, story)


def test_the_store_is_not_searched_for_an_id_by_who_has_heard_of_everything(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.tell(cluster.make("new", 1))
        cluster.store.children = None  # type: ignore[method-assign, assignment]
        assert await cluster.partition_lookup().await_known([NamedPartition("", uuid4(), 0)])

    in_cluster(tmp_path, story)


@pytest.mark.parametrize("known_before", [True, False])
def test_a_member_that_leaves_does_not_overtake_its_commit(
    tmp_path: Path, known_before: bool
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.serve()
        member = await cluster.ends(stable_member(cluster.groups()))
        topic = cluster.make("new", 1)
        if known_before:
            cluster.tell(topic)
        rows = ("new", topic.topic_id, 0)
        first = cluster.begin(LAST_BY_NAME, rows, offset=5, member_id=member)
        broker: Any = cluster
        ctx: Any = SimpleNamespace(api_version=4, client_id="c", client_host="h", extended=False)
        leave = Ask.LeaveGroup(group_id="g", members=[{"member_id": member}])
        await asyncio.sleep(0)  # the commit has its place in the order
        left = asyncio.ensure_future(handle_leave_group(broker, leave, ctx))
        await turns()
        if not known_before:
            assert not left.done()
            cluster.tell(topic)
        assert await first == [ErrorCode.NONE]
        answer = await cluster.ends(left)
        assert [row.error_code for row in answer.members] == [ErrorCode.NONE]
        assert await cluster.committed("new", 0) == 5

    in_cluster(tmp_path, story)


def test_a_member_leaves_though_a_commit_waits_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.serve()
        member = await cluster.ends(stable_member(cluster.groups()))
        monkeypatch.setattr(partition_lookup, "LINE_S", 0.05)
        topic = cluster.make("new", 1)
        first = cluster.begin(LAST_BY_NAME, ("new", topic.topic_id, 0), member_id=member)
        broker: Any = cluster
        ctx: Any = SimpleNamespace(api_version=4, client_id="c", client_host="h", extended=False)
        leave = Ask.LeaveGroup(group_id="g", members=[{"member_id": member}])
        await turns()
        answer = await cluster.ends(handle_leave_group(broker, leave, ctx))
        assert [row.error_code for row in answer.members] == [ErrorCode.NONE]
        assert await first == [LATER]

    in_cluster(tmp_path, story)


def asked(version: int) -> Any:
    return SimpleNamespace(
        api_version=version, client_id="c", client_host="h", extended=False, principal="p"
    )


async def waits_behind(cluster: Cluster, first: asyncio.Task[list[int]], rest: Any) -> Any:
    """The answer to a request that waits until the earlier commit is decided."""
    later = asyncio.ensure_future(cluster.ends(rest))
    await turns()
    overtook = later.done()
    assert cluster.new is not None
    cluster.tell(cluster.new)
    codes, answer = await first, await later
    assert (codes, overtook) == ([ErrorCode.NONE], False)
    assert not cluster.partition_lookup().has_line("g")
    return answer


def test_a_streams_member_that_leaves_does_not_overtake_its_commit(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.serve()
        configs = {name: row.default for name, row in GROUP_CONFIGS.items()}
        cluster.host.group = lambda group_id: configs  # type: ignore[method-assign]
        broker: Any = cluster

        def send(request: Any) -> Any:
            return handle_streams_group_heartbeat(broker, request, asked(0))

        given: Any = SimpleNamespace(send=lambda request: request)
        member = StreamsClient(given, "m", topology(subtopology("0", "heard-of")))
        join = member.beat(lost=True)
        assert (await cluster.ends(send(join))).error_code == ErrorCode.NONE
        cluster.new = cluster.make("new", 1)
        first = cluster.begin(LAST_BY_NAME, ("new", cluster.new.topic_id, 0), member_id="m")
        await turns()
        left = await waits_behind(cluster, first, send(member.leave()))
        assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -1)

    in_cluster(tmp_path, story)


@pytest.mark.parametrize("kind", ["offsets", "groups"])
def test_a_deletion_of_offsets_does_not_overtake_their_commit(tmp_path: Path, kind: str) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.serve()
        cluster.new = cluster.make("new", 1)
        first = cluster.begin(LAST_BY_NAME, ("new", cluster.new.topic_id, 0))
        await turns()
        broker: Any = cluster
        broker.share_states = lambda: SimpleNamespace(group=lambda _: None)
        topics = [{"name": "new", "partitions": [{"partition_index": 0}]}]

        async def deleted() -> Any:
            if kind == "groups":
                delete = Ask.DeleteGroups(groups_names=["other", "g"])
                return (await handle_delete_groups(broker, delete, asked(2))).results[1]
            answer = handle_offset_delete(
                broker, Ask.OffsetDelete(group_id="g", topics=topics), asked(0)
            )
            answer = await answer if isinstance(answer, Awaitable) else answer
            return answer.topics[0].partitions[0]

        answer = await waits_behind(cluster, first, deleted())
        assert answer.error_code == ErrorCode.NONE
        assert await cluster.committed("new", 0) is None

    in_cluster(tmp_path, story)


def test_a_transaction_s_offsets_do_not_overtake_a_commit(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.serve()
        cluster.new = cluster.make("new", 1)
        first = cluster.begin(
            LAST_BY_NAME, ("new", cluster.new.topic_id, 0), ("heard-of", ZERO_UUID, 0)
        )
        await turns()
        pending = cluster.begin(TRANSACTIONAL, ("heard-of", ZERO_UUID, 0), offset=6)
        await turns()
        assert not pending.done()
        cluster.tell(cluster.new)
        assert await first == [ErrorCode.NONE] * 2
        assert await pending == [ErrorCode.NONE]

    in_cluster(tmp_path, story)


def test_a_transaction_s_offsets_are_to_be_repeated_where_commits_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.serve()
        monkeypatch.setattr(partition_lookup, "LINE_S", 0.05)
        async with cluster.partition_lookup().behind("g"):
            assert await cluster.begin(TRANSACTIONAL, ("heard-of", ZERO_UUID, 0)) == [LATER]

    in_cluster(tmp_path, story)


def test_commits_end_before_the_limit_of_what_waits_behind_them() -> None:
    assert 2 * partition_lookup.WAIT_S < partition_lookup.LINE_S < partition_lookup.BEHIND_S
