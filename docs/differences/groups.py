"""Differences in groups and their offsets."""

from __future__ import annotations

from docs.differences.table import Difference

__all__ = ["ROWS"]

ROWS = (
    Difference(
        "ShareFetch: how released records come again",
        "In the batches in which they were first acquired, whole even beyond max_records; one by "
        "one once a batch was acknowledged in parts.",
        "In ranges of records that are alike, up to max_records and the end of a batch of the log.",
        "The limit that the client set holds, and answers are smaller.",
    ),
    Difference(
        "ShareFetch: a topic id that does not exist, an unknown acquire mode",
        "UNKNOWN_SERVER_ERROR for the whole request.",
        "UNKNOWN_TOPIC_ID for the topic; INVALID_REQUEST.",
        "One deleted topic does not stop the others of a session.",
    ),
    Difference(
        "InitializeShareGroupState without a start offset, of a share-partition that has one",
        "Its state begins anew.",
        "Its state stays.",
        "A group coordinator that is killed after it had the state initialized is followed by one "
        "that does so again: what was accepted meanwhile would be delivered again.",
    ),
    Difference(
        "A new share group with share.auto.offset.reset=latest",
        "Its start offset is kept when the first record is acknowledged.",
        "It is kept when the partition is first read.",
        "After a restart before that, records would be passed over.",
    ),
    Difference(
        "ShareFetch: a client over `consumer_byte_rate` or `request_percentage`",
        "An empty answer with the throttle time. What was acquired for it is delivered to nobody "
        "until its locks end, and counts as a delivery.",
        "The records, with the throttle time; the client waits afterwards.",
        "No delivery is used up, and the rate is the same.",
    ),
    Difference(
        "DescribeShareGroupOffsets: a partition whose leader does not tell its end",
        "The partition has an error, and no start offset.",
        "The lag is -1: not known. The start offset is given.",
        "The start offset is known.",
    ),
    Difference(
        "DescribeShareGroupOffsets: a partition that does not exist",
        "The answer waits for half a minute and more.",
        "Start offset -1, at once.",
        "The client is not kept waiting.",
    ),
    Difference(
        "Share groups: which member gets which partition",
        "Chosen by the order of members in a hash table.",
        "By the order of member ids; the numbers of members per partition, and of partitions per "
        "member, are Kafka's.",
        "The same group gives the same assignment on every broker.",
    ),
    Difference(
        "Consumer groups: the hash of the metadata of subscribed topics",
        "XXH3 over Kafka's own form.",
        "Another hash. After a group moves from one to the other, its epoch is increased once.",
        "The hash is compared only with the group's own last one.",
    ),
    Difference(
        "Consumer groups: members that subscribe to a regular expression, at a new coordinator",
        "The coordinator knows the expressions from `__consumer_offsets`.",
        "The coordinator learns them from the next heartbeat, and finds no new topics before.",
        "Not built yet.",
    ),
    Difference(
        "Streams groups: tasks that a member did not receive because an answer was lost",
        "The member waits for the next rebalance.",
        "A member that reports other tasks gets its tasks again.",
        "The member works again after one heartbeat.",
    ),
    Difference(
        "Streams groups: a member with a user endpoint while source topics are missing",
        "`UNKNOWN_SERVER_ERROR`.",
        "The status that says which topics are missing.",
        "The client learns what is wrong.",
    ),
    Difference(
        "Consumer, share and Streams groups: a new coordinator whose clock is behind the old one's",
        "No new assignment until its clock has caught up: after a step of an hour, members that "
        "join wait for an hour.",
        "The next heartbeat has the assignment computed.",
        "A wrong clock leaves no partition without a consumer.",
    ),
)
