"""Differences in requests, their answers and their limits."""

from __future__ import annotations

from docs.differences.table import Difference

__all__ = ["LIMITS", "ODD_REQUESTS", "RECORDS"]

RECORDS = (
    Difference(
        "Produce: records whose offset deltas do not start at 0",
        "Checks only the deltas of compressed batches.",
        "Refuses the batch with `INVALID_RECORD`, compressed or not.",
        "The record format requires consecutive deltas.",
    ),
    Difference(
        "Produce: an unknown compression codec",
        "`UNKNOWN_SERVER_ERROR`.",
        "`UNSUPPORTED_COMPRESSION_TYPE`.",
        "The client learns what is wrong.",
    ),
    Difference(
        "Produce: a producer id below -1, or without an epoch",
        "Accepts the batch.",
        "Refuses it with `INVALID_RECORD`.",
        "Its sequence numbers would protect nothing.",
    ),
    Difference(
        "Produce: part of another batch, or bytes that are not a batch, after a partition's batch "
        "or after its compressed records",
        "Drops them silently if they are shorter than their length field says.",
        "Refuses the batch with `INVALID_RECORD` or `CORRUPT_MESSAGE`.",
        "Otherwise records can be lost although the producer considers them written.",
    ),
    Difference(
        "Produce: compressed records that cannot be decompressed, or whose offset deltas are not "
        "consecutive",
        "`UNKNOWN_SERVER_ERROR`.",
        "`INVALID_RECORD`.",
        "The client learns what is wrong.",
    ),
    Difference(
        "Produce: a control batch, or a batch followed by other bytes, that is also too large or "
        "has a wrong checksum",
        "`MESSAGE_TOO_LARGE` or `CORRUPT_MESSAGE`.",
        "`INVALID_RECORD` or `CORRUPT_MESSAGE`.",
        "The batch is refused before its size and its records are checked. No client sends such a "
        "batch.",
    ),
    Difference(
        "Produce: which records of a refused batch are named (KIP-467)",
        "All.",
        "The first 1,000, and none of a compressed batch that expands to more than 256 KB.",
        "The event loop finds these records, and must not be blocked.",
    ),
    Difference(
        "Produce: the append time of a duplicate batch, in a topic with `CreateTime`",
        "The largest timestamp of the batch, which producers then show for each of its records.",
        "-1. With `LogAppendTime`, the append time of the original, as in Kafka.",
        "The producer shows each record's own timestamp.",
    ),
    Difference(
        "Produce: bytes that are not a record batch",
        "`CORRUPT_MESSAGE`, mostly without a message.",
        "The same error with a message.",
        "The client learns what is wrong.",
    ),
    Difference(
        "Produce: compressed batches that expand to a very large size",
        "No limit.",
        "A batch can expand to the largest of 16 MB, 32 times `max.message.bytes` and 256 times "
        "its size, but to no more than 256 MB. Above that the answer is `MESSAGE_TOO_LARGE`, and "
        "producers split the batch.",
        "A small request must not fill the broker's memory.",
    ),
    Difference(
        "Produce: the log start offset in a response with an error",
        "Present with some errors.",
        "-1 with every error.",
        "Clients do not use it.",
    ),
    Difference(
        "Fetch: `max_bytes` or the bytes of a partition below 0",
        "`UNKNOWN_SERVER_ERROR` for each partition that has data.",
        "Treated as 0: at least one batch is sent.",
        "The consumer makes progress.",
    ),
    Difference(
        "Fetch: partitions that do not exist, of a topic that exists",
        "In a second row of the topic, at the end.",
        "In the topic's row.",
        "Clients treat both alike.",
    ),
    Difference(
        "Fetch sessions by topic id, for a topic that was deleted and created again",
        "`UNKNOWN_TOPIC_OR_PARTITION`, then `INCONSISTENT_TOPIC_ID`.",
        "`UNKNOWN_TOPIC_ID`, as without a session.",
        "The id belongs to no topic; clients treat all three alike.",
    ),
    Difference(
        "CreateTopics: two new topics in one request whose names differ only in `.` and `_`",
        "Creates both, although the second would be refused in a separate request.",
        "Creates the first and refuses the others with `INVALID_TOPIC_EXCEPTION`.",
        "The rule does not depend on how topics are grouped into requests.",
    ),
    Difference(
        "Fetch: the end of a full response",
        "Ends with a part of the next batch.",
        "Ends after a whole batch.",
        "Clients discard the partial batch.",
    ),
    Difference(
        "Fetch: aborted transactions in a response with an error",
        "null with some errors.",
        "An empty list.",
        "Clients treat both alike.",
    ),
    Difference(
        "EndTxn: when the response is sent",
        "Before the markers are written. A client that continues at once can get "
        "`CONCURRENT_TRANSACTIONS`.",
        "After the markers are written.",
        "The next request of the client succeeds.",
    ),
    Difference(
        "CreateTopics: when the response is sent",
        "Before the partitions are ready: for some milliseconds they answer "
        "`NOT_LEADER_OR_FOLLOWER`.",
        "After the partitions are ready.",
        "The next request of the client succeeds.",
    ),
    Difference(
        "Metadata that creates a topic",
        "`UNKNOWN_TOPIC_OR_PARTITION`; the topic is created later.",
        "The response includes the new topic.",
        "It saves the client a retry.",
    ),
    Difference(
        "Metadata, version 0: replicas on brokers that are down",
        "Left out.",
        "Included, as in later versions.",
        "One rule for all versions.",
    ),
    Difference(
        "CreateTopics and CreatePartitions: brokers that are down",
        "Each registered broker can be a replica.",
        "The same for brokers that have replicas of other topics. Others are not known while they "
        "are down: `INVALID_REPLICATION_FACTOR` if too few are left.",
        "The store knows the brokers that are up, and replicas.",
    ),
    Difference(
        "CreatePartitions",
        "The leader epochs of existing partitions do not change.",
        "Existing partitions get new leader epochs.",
        "The new epochs mark the end of the records that were written before the expansion "
        "(KIP-253).",
    ),
    Difference(
        "CreatePartitions with a smaller number",
        "`INVALID_PARTITIONS`.",
        "The same; with the tagged field `MayShrink` the topic shrinks.",
        "Keys can stay in order (KIP-253).",
    ),
    Difference(
        "CreatePartitions, when a leader does not answer the controller",
        "The partitions are created.",
        "Another replica becomes leader. If there is none, the answer is `REQUEST_TIMED_OUT` "
        "after `kstore.expansion.timeout.ms`, and no partition is created.",
        "The old leader could still append records under the old number (KIP-253).",
    ),
    Difference(
        "GetTelemetrySubscriptions, PushTelemetry in ApiVersions",
        "Listed when a receiver of metrics is configured.",
        "Always listed.",
        "kstore's own metrics page is a receiver.",
    ),
    Difference(
        "The messages of errors, which tools print after the name of the error",
        "Kafka's sentences.",
        "kstore's own sentences; some also say what to do. The error codes are Kafka's.",
        "They name kstore's rules and limits.",
    ),
    Difference(
        "Names of loggers (`--entity-type broker-loggers`)",
        "Java classes and packages.",
        "Python modules, which begin with `kstore.`; `root` too.",
        "They are kstore's loggers.",
    ),
    Difference(
        "DescribeConfigs of all configs",
        "Kafka's configs.",
        "kstore's own configs as well; they begin with `kstore.`.",
        "Clients can show and set them.",
    ),
    Difference(
        "Documentation of settings in DescribeConfigs",
        "Kafka's text.",
        "kstore's own text.",
        "It describes what kstore does.",
    ),
    Difference(
        "DescribeConfigs of a broker: a static value in another unit, once a dynamic value is set",
        "Shows the default: `log.retention.hours=168` although the file says 24.",
        "Shows the value from the file.",
        "The file's value returns when the dynamic value is removed.",
    ),
    Difference(
        "Topic configs: `NaN` as a ratio",
        "Accepted; the log is never cleaned again.",
        "Refused.",
        "`NaN` is not a ratio.",
    ),
    Difference(
        "`retention.bytes` and `log.retention.ms` below -1",
        "Accepted; they mean -1, no limit.",
        "Refused.",
        "Only -1 is documented.",
    ),
    Difference(
        "`kafka-streams-groups --state NotReady`",
        "Lists nothing.",
        "Lists groups that are not ready.",
        "The option asks for these groups.",
    ),
)

LIMITS = (
    Difference(
        "Regular expressions from clients: subscriptions, `transactionalIdPattern`, `match` of "
        "client metrics",
        "Of any length. `match` is a Java expression.",
        "RE2 only, and at most 4,096 steps (about 200 topic names joined by `|`). Otherwise the "
        "answer is `INVALID_REGULAR_EXPRESSION`, for `match` `INVALID_CONFIG`.",
        "Limiting the steps limits the time that an expression can take.",
    ),
    Difference(
        "Elements in one request",
        "As many as fit into `socket.request.max.bytes`.",
        "At most `kstore.request.max.elements`. Above that the broker closes the connection and "
        "names the setting in its log.",
        "Memory and time of a request are limited.",
    ),
    Difference(
        "Fetch: a consumer over `consumer_byte_rate`",
        "Gets an empty response with the throttle time, and fetches again afterwards.",
        "Gets the records with the throttle time, and waits before the next fetch.",
        "The records are read once. The rate is the same, and a response has no more bytes than "
        "the quota allows in a whole window, as in Kafka.",
    ),
    Difference(
        "`request_percentage`",
        "Measures the time of network and I/O threads.",
        "Measures the time that the event loop spends on a client's requests. The throttle time "
        "is in every answer except Metadata and ApiVersions.",
        "There is one event loop. Answers to Metadata and ApiVersions are shared by all clients.",
    ),
)

ODD_REQUESTS = (
    Difference(
        "A length between 2^31 and 2^32, or a negative length other than -1",
        "null.",
        "Refused.",
        "No client uses them to mean null.",
    ),
    Difference(
        "Produce, Fetch: null where an array or a name is required",
        "The connection is closed.",
        "Treated as empty.",
        "The client gets an answer.",
    ),
    Difference(
        "Produce with null records, AlterConfigs and WriteTxnMarkers that name something twice, "
        "AddPartitionsToTxn 4+ without transactions",
        "No answer.",
        "An answer.",
        "The connection stays usable.",
    ),
    Difference(
        "AlterReplicaLogDirs with a name that no topic can have, CreatePartitions with 2^31 - 1 "
        "partitions, AlterUserScramCredentials with an empty salted password, "
        "DescribeTopicPartitions with an empty name, Metadata 13 with neither name nor id",
        "`UNKNOWN_SERVER_ERROR`.",
        "The error that names the problem: `UNKNOWN_TOPIC_OR_PARTITION`, `INVALID_PARTITIONS`, "
        "`UNACCEPTABLE_CREDENTIAL`, `INVALID_TOPIC_EXCEPTION`, `UNKNOWN_TOPIC_ID`.",
        "The client learns what is wrong.",
    ),
    Difference(
        "IncrementalAlterConfigs with an unknown operation",
        "An error without a message.",
        "The same error with a message.",
        "The client learns what is wrong.",
    ),
    Difference(
        "DescribeLogDirs with a partition named twice",
        "One answer.",
        "An answer for each.",
        "No client does this.",
    ),
    Difference(
        "OffsetCommit, TxnOffsetCommit: a partition that the broker does not know yet",
        "`UNKNOWN_TOPIC_OR_PARTITION` or `UNKNOWN_TOPIC_ID`, also from a broker that is not the "
        "group's coordinator.",
        "A broker that is not the coordinator answers `NOT_COORDINATOR`. The coordinator asks the "
        "coordination store. If the partition does not exist, it answers as Kafka does. If it "
        "exists, the coordinator waits for its metadata for at most a second, and commits; or it "
        "answers `COORDINATOR_LOAD_IN_PROGRESS`, which clients repeat.",
        "The member may have got the partition from newer metadata than the broker has.",
    ),
    Difference(
        "OffsetCommit, TxnOffsetCommit with a topic named twice",
        "Two rows in the answer.",
        "One row.",
        "No client does this.",
    ),
)
