"""Differences in groups and their offsets."""

from __future__ import annotations

from docs.differences.table import Difference

__all__ = ["ROWS"]

ROWS = (
    Difference(
        "ShareFetch: how released records are delivered again",
        "In the batches in which they were first acquired, whole even beyond max_records. After a "
        "batch was acknowledged in parts: one by one.",
        "In ranges of records with the same state, up to max_records and the end of a batch of "
        "the log.",
        "The client's limit applies, and responses are smaller.",
    ),
    Difference(
        "ShareFetch: a topic id that does not exist, an unknown acquire mode",
        "UNKNOWN_SERVER_ERROR for the whole request.",
        "UNKNOWN_TOPIC_ID for the topic; INVALID_REQUEST.",
        "A deleted topic does not affect the other topics of a session.",
    ),
    Difference(
        "InitializeShareGroupState without a start offset, for a share-partition that already has "
        "one",
        "Its state is reset.",
        "Its state does not change.",
        "If a group coordinator is killed after it initialized the state, the next coordinator "
        "initializes it again. Records that were accepted in between would be delivered again.",
    ),
    Difference(
        "A new share group with share.auto.offset.reset=latest",
        "Its start offset is stored when the first record is acknowledged.",
        "Its start offset is stored when the partition is first read.",
        "Otherwise a restart before the first acknowledgement would skip records.",
    ),
    Difference(
        "ShareFetch: a client over `consumer_byte_rate` or `request_percentage`",
        "Gets an empty response with the throttle time. The acquired records are not delivered "
        "until their locks expire, and this counts as a delivery.",
        "Gets the records with the throttle time, and waits before the next fetch.",
        "No delivery attempt is used up, and the rate is the same.",
    ),
    Difference(
        "DescribeShareGroupOffsets: a partition whose leader does not report its end offset",
        "The partition has an error, and no start offset.",
        "The lag is -1 (unknown). The start offset is returned.",
        "The start offset is known.",
    ),
    Difference(
        "DescribeShareGroupOffsets: a partition that does not exist",
        "The response takes half a minute or more.",
        "The response has the start offset -1, at once.",
        "The client does not have to wait.",
    ),
    Difference(
        "Share groups: which member gets which partition",
        "Chosen by the order of members in a hash table.",
        "By the order of member ids; the numbers of members per partition, and of partitions per "
        "member, are Kafka's.",
        "The same group gets the same assignment on every broker.",
    ),
    Difference(
        "Consumer groups: the hash of the metadata of subscribed topics",
        "XXH3 of Kafka's own representation.",
        "Another hash. If a group moves between Kafka and kstore, its epoch is increased once.",
        "The hash is compared only with the previous hash of the same group.",
    ),
    Difference(
        "Consumer groups: members that subscribe to a regular expression, after a change of "
        "coordinator",
        "The new coordinator reads the expressions from `__consumer_offsets`.",
        "The new coordinator learns the expressions from the next heartbeat, and finds no new "
        "topics until then.",
        "Not built yet.",
    ),
    Difference(
        "Streams groups: tasks that a member did not receive because a response was lost",
        "The member waits for the next rebalance.",
        "A member that reports other tasks receives its assignment again.",
        "The member works again after one heartbeat.",
    ),
    Difference(
        "Streams groups: a member with a user endpoint while source topics are missing",
        "`UNKNOWN_SERVER_ERROR`.",
        "The status names the missing topics.",
        "The client learns what is wrong.",
    ),
    Difference(
        "Consumer, share and Streams groups: a new coordinator whose clock is behind the old one's",
        "Computes no new assignment until its clock has caught up: if it is an hour behind, new "
        "members wait for an hour.",
        "Computes the assignment at the next heartbeat.",
        "A wrong clock leaves no partition without a consumer.",
    ),
)
