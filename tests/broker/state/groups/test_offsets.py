"""OffsetCommit, OffsetFetch, OffsetDelete, expiry and deletion of groups, as transcripts."""

from __future__ import annotations

from uuid import UUID

import pytest

from kstore.broker.state.groups.offsets import commit_record
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.work import whole
from kstore.errors import ErrorCode
from kstore.protocol.coordinator_records.classic import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kstore.protocol.groups.group_admin import (
    DeletableGroupResult,
    DescribedGroup,
    DescribedGroupMember,
    ListedGroup,
)
from kstore.protocol.groups.offsets import (
    OffsetCommitRequestPartition,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kstore.protocol.schema import ZERO_UUID
from tests.plain_messages import Ask
from tests.record_requests import commit_request
from tests.reference.group_driver import GroupDriver

TOPIC_ID = UUID(int=7)
WEEK_MS = 7 * 24 * 3600 * 1000
SUBSCRIBED_TO_T = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x01t" + b"\xff\xff\xff\xff"


def commit(
    driver: GroupDriver,
    offset: int = 5,
    *,
    group: str = "g",
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
    metadata: str | None = "m",
    topic: str = "t",
    retention_ms: int = -1,
    version: int = 9,
) -> int:
    request = commit_request(
        topic, {0: offset}, group, topic_id=TOPIC_ID, member_id=member, group_instance_id=instance,
        generation_id_or_member_epoch=generation, retention_time_ms=retention_ms,
        row={"committed_leader_epoch": 3, "committed_metadata": metadata},
    )  # fmt: skip
    response = driver.send(request, version=version)
    return int(response.topics[0].partitions[0].error_code)


def fetch(
    driver: GroupDriver,
    topics: dict[str, list[int]] | None,
    *,
    group: str = "g",
    topic_id: UUID = TOPIC_ID,
    stable: bool = False,
) -> OffsetFetchResponseGroup:
    asked = None
    if topics is not None:
        asked = [
            OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=indexes)
            for name, indexes in topics.items()
        ]
    request = OffsetFetchRequestGroup(group_id=group, topics=asked)
    return whole(driver.shard.fetch_offsets(request, require_stable=stable))


def offset_in(response: OffsetFetchResponseGroup) -> tuple[int, int]:
    (topic,) = response.topics
    (partition,) = topic.partitions
    return partition.committed_offset, partition.error_code


def test_a_consumer_without_a_group_commits_and_fetches() -> None:
    driver = GroupDriver()
    assert commit(driver) == ErrorCode.NONE
    assert driver.last_records == [
        GroupRecord(
            OffsetCommitKey(group="g", topic="t", partition=0),
            OffsetCommitValue(
                offset=5,
                leader_epoch=3,
                metadata="m",
                commit_timestamp=1_000_000,
                topic_id=TOPIC_ID,
            ),
            4,
        )
    ]
    assert fetch(driver, {"t": [0, 1]}) == OffsetFetchResponseGroup(
        group_id="g",
        topics=[
            OffsetFetchResponseTopics(
                name="t",
                topic_id=TOPIC_ID,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=0,
                        committed_offset=5,
                        committed_leader_epoch=3,
                        metadata="m",
                    ),
                    OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1),
                ],
            )
        ],
    )


def test_fetching_all_topics_of_a_group_and_of_one_that_is_not_there() -> None:
    driver = GroupDriver()
    commit(driver, 1, topic="t")
    commit(driver, 2, topic="u")
    assert [topic.name for topic in fetch(driver, None).topics] == ["t", "u"]
    assert fetch(driver, None, group="none") == OffsetFetchResponseGroup(group_id="none")
    assert offset_in(fetch(driver, {"t": [0]}, group="none")) == (-1, ErrorCode.NONE)


def test_offsets_of_a_deleted_topic_are_not_those_of_its_successor() -> None:
    driver = GroupDriver()
    commit(driver)
    assert offset_in(fetch(driver, {"t": [0]}, topic_id=UUID(int=8))) == (-1, ErrorCode.NONE)


def test_members_commit_in_their_generation_only() -> None:
    driver = GroupDriver()
    (member,) = driver.stable_group()
    assert commit(driver, generation=1, member=member) == ErrorCode.NONE
    assert commit(driver, generation=0, member=member) == ErrorCode.ILLEGAL_GENERATION
    assert commit(driver, generation=1, member="ghost") == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.refused == {ErrorCode.ILLEGAL_GENERATION: 1}
    assert commit(driver, generation=1, member=member, instance="s") == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(driver) == ErrorCode.UNKNOWN_MEMBER_ID, "the group is in use"


def test_a_generation_of_a_group_that_is_not_there() -> None:
    driver = GroupDriver()
    assert commit(driver, generation=1, member="m") == ErrorCode.GROUP_ID_NOT_FOUND
    assert commit(driver, generation=1, member="m", version=8) == ErrorCode.ILLEGAL_GENERATION


def test_while_rebalancing_commits_are_welcome_until_the_new_generation() -> None:
    driver = GroupDriver()
    (member,) = driver.stable_group()
    newcomer = driver.join().member_id
    driver.join(member_id=newcomer)
    assert commit(driver, generation=1, member=member) == ErrorCode.NONE
    driver.join(member_id=member)
    assert commit(driver, generation=2, member=member) == ErrorCode.REBALANCE_IN_PROGRESS
    assert commit(driver, generation=1, member=member) == ErrorCode.ILLEGAL_GENERATION


def test_a_commit_is_a_sign_of_life() -> None:
    driver = GroupDriver()
    (member,) = driver.stable_group(session_ms=10_000)
    for _ in range(3):
        driver.advance(9_000)
        assert commit(driver, generation=1, member=member) == ErrorCode.NONE


def test_an_emptied_group_takes_commits_from_outside() -> None:
    driver = GroupDriver()
    (member,) = driver.stable_group()
    driver.leave((member, None))
    assert commit(driver) == ErrorCode.NONE
    assert commit(driver, generation=1, member=member) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("metadata", "error_code"),
    [
        ("x" * 4096, ErrorCode.NONE),
        ("é" * 4096, ErrorCode.NONE),
        ("x" * 4097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("🙂" * 2049, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_metadata_is_measured_as_java_does(metadata: str, error_code: int) -> None:
    driver = GroupDriver()
    assert commit(driver, metadata=metadata) == error_code
    assert len(driver.log) == (error_code == ErrorCode.NONE)


def test_no_metadata_is_stored_and_fetched_as_empty() -> None:
    driver = GroupDriver()
    commit(driver, metadata=None)
    assert fetch(driver, None).topics[0].partitions[0].metadata == ""


def test_committed_offsets_survive_a_restart() -> None:
    driver = GroupDriver()
    commit(driver, 5)
    commit(driver, 6)
    driver.restart()
    assert offset_in(fetch(driver, {"t": [0]})) == (6, ErrorCode.NONE)


class TestExpiry:
    def test_a_simple_consumers_offsets_expire_after_their_commit(self) -> None:
        driver = GroupDriver()
        commit(driver)
        driver.advance(WEEK_MS - 1)
        driver.expire_offsets()
        assert driver.last_records == []
        driver.advance(1)
        driver.expire_offsets()
        assert [(record.key, record.value) for record in driver.last_records] == [
            (OffsetCommitKey(group="g", topic="t", partition=0), None),
            (GroupMetadataKey(group="g"), None),
        ]
        assert driver.shard.groups == {}

    def test_a_groups_offsets_expire_after_it_fell_empty(self) -> None:
        driver = GroupDriver()
        (member,) = driver.stable_group(session_ms=1_800_000)
        commit(driver, generation=1, member=member)
        for _ in range(WEEK_MS // 1_700_000 + 1):
            driver.advance(1_700_000)
            driver.heartbeat(member, 1)
        driver.expire_offsets()
        assert driver.last_records == [], "the group is alive"
        driver.leave((member, None))
        driver.advance(WEEK_MS)
        driver.expire_offsets()
        assert len(driver.last_records) == 2

    def test_of_a_living_group_only_topics_expire_that_nobody_consumes(self) -> None:
        driver = GroupDriver()
        protocols = (("range", SUBSCRIBED_TO_T),)
        (member,) = driver.stable_group(session_ms=1_800_000, protocols=protocols)
        commit(driver, generation=1, member=member, topic="t")
        commit(driver, generation=1, member=member, topic="u")
        for _ in range(WEEK_MS // 1_700_000 + 1):
            driver.advance(1_700_000)
            driver.heartbeat(member, 1)
        driver.expire_offsets()
        assert [record.key for record in driver.last_records] == [
            OffsetCommitKey(group="g", topic="u", partition=0)
        ]

    def test_an_old_clients_own_retention_is_kept_in_a_version_1_record(self) -> None:
        driver = GroupDriver()
        commit(driver, retention_ms=1000, version=4)
        (record,) = driver.last_records
        assert record.value_version == 1
        driver.restart()
        driver.advance(1000)
        driver.expire_offsets()
        assert len(driver.last_records) == 2


class TestDeletion:
    def test_an_empty_group_goes_with_its_offsets(self) -> None:
        driver = GroupDriver()
        commit(driver)
        results = [
            driver.send(Ask.DeleteGroups(groups_names=[name])).results[0] for name in ("none", "g")
        ]
        assert results[::-1] == [
            DeletableGroupResult(group_id="g"),
            DeletableGroupResult(group_id="none", error_code=ErrorCode.GROUP_ID_NOT_FOUND),
        ]
        assert [record.value for record in driver.last_records] == [None, None]
        driver.restart()
        assert driver.shard.groups == {}

    def test_a_group_with_members_stays(self) -> None:
        driver = GroupDriver()
        driver.stable_group()
        (result,) = driver.send(Ask.DeleteGroups(groups_names=["g"])).results
        assert result.error_code == ErrorCode.NON_EMPTY_GROUP

    def test_offsets_go_unless_a_member_consumes_the_topic(self) -> None:
        driver = GroupDriver()
        (member,) = driver.stable_group(protocols=(("range", SUBSCRIBED_TO_T),))
        commit(driver, generation=1, member=member, topic="t")
        commit(driver, generation=1, member=member, topic="u")
        partition = [{"partition_index": 0}]
        topics = [{"name": n, "partitions": partition} for n in ("t", "u", "v")]
        response = driver.send(Ask.OffsetDelete(group_id="g", topics=topics))
        assert [topic.partitions[0].error_code for topic in response.topics] == [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ErrorCode.NONE,
            ErrorCode.NONE,
        ]
        assert [record.key for record in driver.last_records] == [
            OffsetCommitKey(group="g", topic="u", partition=0)
        ]
        for group, code in (("", ErrorCode.INVALID_GROUP_ID), ("x", ErrorCode.GROUP_ID_NOT_FOUND)):
            assert driver.send(Ask.OffsetDelete(group_id=group)).error_code == code

    def test_a_deleted_topic_takes_its_offsets_along(self) -> None:
        driver = GroupDriver()
        commit(driver, group="g", topic="t")
        commit(driver, group="h", topic="t")
        commit(driver, group="h", topic="u")
        deleted = 0
        for result in driver.shard.forget_topic("t"):
            whole(driver.shard.take_over(result))
            deleted += len(result.records)
        assert deleted == 2
        assert fetch(driver, None, group="g").topics == []
        assert [topic.name for topic in fetch(driver, None, group="h").topics] == ["u"]


def asked(offset: int) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=3
    )


class TestTransactions:
    record = commit_record("g", "t", ZERO_UUID, asked(9), 1)

    def test_offsets_of_an_open_transaction_are_not_seen(self) -> None:
        driver = GroupDriver()
        commit(driver)
        driver.shard.replay(self.record, record_offset=10, producer_id=1)
        assert offset_in(fetch(driver, {"t": [0]})) == (5, ErrorCode.NONE)
        unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert offset_in(fetch(driver, {"t": [0]}, stable=True)) == (-1, unstable)

    @pytest.mark.parametrize(("committed", "offset"), [(True, 9), (False, 5)])
    def test_its_marker_decides(self, committed: bool, offset: int) -> None:
        driver = GroupDriver()
        commit(driver)
        driver.shard.replay(self.record, record_offset=10, producer_id=1)
        whole(driver.shard.replay_transaction_end(1, committed=committed))
        assert offset_in(fetch(driver, {"t": [0]}, stable=True)) == (offset, ErrorCode.NONE)

    def test_a_later_plain_commit_wins_over_an_earlier_transactional_one(self) -> None:
        driver = GroupDriver()
        driver.shard.replay(self.record, record_offset=1, producer_id=1)
        plain = commit_record("g", "t", ZERO_UUID, asked(7), 1)
        driver.shard.replay(plain, record_offset=2)
        whole(driver.shard.replay_transaction_end(1, committed=True))
        assert offset_in(fetch(driver, {"t": [0]})) == (7, ErrorCode.NONE)


class TestDescribeAndList:
    def test_a_stable_group_shows_its_members_with_metadata_and_assignment(self) -> None:
        driver = GroupDriver()
        (member,) = driver.stable_group()
        assert whole(driver.shard.describe("g", 6)) == DescribedGroup(
            group_id="g",
            group_state="Stable",
            protocol_type="consumer",
            protocol_data="range",
            members=[
                DescribedGroupMember(
                    member_id=member,
                    client_id="c",
                    client_host="/127.0.0.1",
                    member_metadata=b"meta",
                    member_assignment=b"a-" + member.encode(),
                )
            ],
        )

    def test_a_group_between_generations_shows_no_protocol(self) -> None:
        driver = GroupDriver()
        first, _ = driver.stable_group(2)
        driver.join(member_id=first)
        described = whole(driver.shard.describe("g", 6))
        assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
        assert described.members[0].member_metadata == b""

    def test_an_unknown_group_is_dead_and_since_version_6_an_error(self) -> None:
        shard = GroupDriver().shard
        assert whole(shard.describe("x", 5)) == DescribedGroup(group_id="x", group_state="Dead")
        assert whole(shard.describe("x", 6)).error_code == ErrorCode.GROUP_ID_NOT_FOUND

    @pytest.mark.parametrize(
        ("states", "types", "names"),
        [
            ([], [], ["g", "simple"]),
            (["stable"], [], ["g"]),
            ([" Empty", "Dead"], [], ["simple"]),
            ([], ["Classic"], ["g", "simple"]),
            ([], ["consumer"], []),
        ],
    )
    def test_lists_are_filtered(
        self, states: list[str], types: list[str], names: list[str]
    ) -> None:
        driver = GroupDriver()
        driver.stable_group()
        commit(driver, group="simple")
        assert [group.group_id for group in whole(driver.shard.list(states, types))] == names

    def test_an_entry_says_state_and_types(self) -> None:
        driver = GroupDriver()
        commit(driver)
        assert whole(driver.shard.list([], [])) == [
            ListedGroup(group_id="g", protocol_type="", group_state="Empty", group_type="classic")
        ]


class TestPartitionEpochs:
    """KIP-232: an offset of an older partition or leader replaces none of a newer."""

    def commit(self, driver: GroupDriver, partition_epoch: int, leader_epoch: int) -> int:
        row = {
            "partition_index": 0,
            "committed_offset": 5,
            "committed_leader_epoch": leader_epoch,
            "partition_epoch": partition_epoch,
        }
        topic = {"name": "t", "partitions": [row]}
        response = driver.send(Ask.OffsetCommit(group_id="g", topics=[topic]))
        return int(response.topics[0].partitions[0].error_code)

    @pytest.mark.parametrize(
        ("partition_epoch", "leader_epoch", "error_code"),
        [
            (6, 3, ErrorCode.INVALID_PARTITION_EPOCH),
            (7, 2, ErrorCode.INVALID_LEADER_EPOCH),
            (7, 3, ErrorCode.NONE),
            (7, -1, ErrorCode.NONE),
            (8, 0, ErrorCode.NONE),
            (-1, 0, ErrorCode.NONE),
        ],
    )
    def test_older_epochs_are_refused(
        self, partition_epoch: int, leader_epoch: int, error_code: int
    ) -> None:
        driver = GroupDriver()
        assert self.commit(driver, 7, 3) == ErrorCode.NONE
        driver.restart()
        before = driver.shard.offsets.get("g", "t", 0)
        assert self.commit(driver, partition_epoch, leader_epoch) == error_code
        after = driver.shard.offsets.get("g", "t", 0)
        refused = error_code != ErrorCode.NONE
        assert (after == before) == refused

    def test_what_was_stored_is_returned(self) -> None:
        driver = GroupDriver()
        self.commit(driver, 7, 3)
        driver.restart()
        request = OffsetFetchRequestGroup(group_id="g", topics=None)
        fetched = whole(driver.shard.fetch_offsets(request, require_stable=False))
        (partition,) = fetched.topics[0].partitions
        assert (partition.committed_leader_epoch, partition.partition_epoch) == (3, 7)
