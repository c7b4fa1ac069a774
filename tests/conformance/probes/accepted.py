"""Intended differences from Kafka, and known differences that are listed as left out: a pattern for
the line of the difference, and the reason.
"""

ACCEPTED: dict[str, str] = {
    # Admin
    r"ApiVersions ranges v-1: .*(GetTelemetrySubscriptions|PushTelemetry)":
        "Kafka lists telemetry once a receiver is configured; kstore's metrics are always one",
    r"CreatePartitions v[\d,-]+: .*leader_epoch: Kafka 0, kstore 1":
        "an expansion begins new leader epochs, so that what came before it can be told (KIP-253)",
    r"DescribeQuorum v[\d,-]+: .*(log_end_offset|high_watermark|leader_epoch|_timestamp): ":
        "each broker's own times, and how far its metadata is",
    r"DescribeQuorum(, .*)? v2: .*listeners|bent DescribeQuorum, .* v2: CONTROLLER, PLAINTEXT: ":
        "kstore's controller is reached on the broker's own listeners",
    # Streams groups
    r"StreamsGroupHeartbeat life .*_tasks: Kafka None, kstore \[":
        "a member that says it has other tasks has missed an answer, and is told again",
    # Share groups
    r"bent ShareGroupHeartbeat, .* v1: error_message: Kafka None, kstore '":
        "an error says why in words",
    r"bent (Describe|Alter)ShareGroupOffsets, .*(partitions|topics) doubled v":
        "a partition that is named twice is answered twice, as in DescribeLogDirs",
    r"bent DescribeShareGroupOffsets, groups\[0\]\."
    r"(group_id = ''|topics\[0\]\.partitions = \[\]) v":
        "no such group, or no partition: kstore answers so; Kafka fails with UNKNOWN_SERVER_ERROR",
    r"bent (Describe|Alter)ShareGroupOffsets, .*partition(s\[0\]|_index) = -?\d+ v":
        "an unknown partition has its own error; Kafka fails with UNKNOWN_SERVER_ERROR for all, or "
        "does not answer",
    r"bent \w+ShareGroupState(Summary)?, topics(\[0\]\.partitions)? ?(= \[\]|doubled) v":
        "between brokers, which name each partition once: kstore answers row by row",
    r"ShareFetch sessions v[\d,-]+: .*'records': '0 bytes', 'acquired_records': \[\].*, "
    r"kstore \[\]":
        "a partition that a session has just been given, without records: kstore leaves it out",
    r"ShareFetch records and refusals v[\d,-]+: .*(lock_timeout_ms: Kafka 0|error_code: Kafka -1"
    r"|responses: Kafka \[\])":
        "an unknown topic in a session has its own error; Kafka fails with UNKNOWN_SERVER_ERROR",
    r"ShareFetch modes and renewals v2: \[0\].*error_code: Kafka -1, kstore 42":
        "an unknown mode is INVALID_REQUEST; Kafka fails with UNKNOWN_SERVER_ERROR",
    r"ShareFetch modes and renewals v2: .*acquired_records: Kafka .*'last_offset': 3, .*"
    r"'first_offset': 4, .*kstore .*'first_offset': 3, 'last_offset': 5":
        "the same records as one range; Kafka begins another one where a batch begins",
    r"Share(Fetch modes and renewals|Acknowledge) v[\d,-]+: .*error_message: Kafka None, kstore":
        "an error says why in words",
    r"Structures of ShareFetch v[\d,-]+: .*'records': '0 bytes', 'acquired_records': \[\].*, "
    r"kstore None":
        "a partition that a session has just been given, without records: kstore leaves it out",
    r"Structures of ShareFetch v2: \[9\].*acknowledge_error_(code: Kafka 0, kstore 42|message)":
        "a record in two ranges is INVALID_REQUEST, whatever its state; Kafka allows it for a last "
        "record",
    r"Structures of share groups v1: .*error_message: Kafka None, kstore":
        "an error says why in words",
    r"Structures of share groups' offsets v[\d,-]+: \[1\]\.":
        "a group without a name has no offsets; Kafka fails with UNKNOWN_SERVER_ERROR",
    r"ShareAcknowledge v[\d,-]+: \[13\].*error_code: Kafka 121, kstore 42":
        "a record in two ranges is INVALID_REQUEST, whatever its state; Kafka allows it for a last "
        "record, and answers by the state",
    # ApiVersions and topics
    r"DescribeConfigs.*(offsets\.topic|transaction\.state\.log|share\.coordinator\.state\.topic)"
    r"\.(replication\.factor|min\.isr)"
    r" again.value: Kafka '[23]', kstore '1'": "one broker is the usual start: they default to 1",
    r"IncrementalAlterConfigs, spellings v1: \[5[247]\]":
        "NaN is no ratio, and refused; Kafka takes it, and never cleans the log again",
    r"DescribeConfigs.*\.documentation: Kafka": "what a setting does is told in our own words",
    r"Metadata auto-creates|bent Metadata, .*an absent name v0: ":
        "Kafka answers UNKNOWN_TOPIC_OR_PARTITION and creates the topic behind the answer; kstore "
        "has created it by then and says so, which saves the client a retry",
    r"bent Metadata, topics\[0\]\.name = null v13: ":
        "neither a name nor an id: UNKNOWN_TOPIC_ID; Kafka fails with UNKNOWN_SERVER_ERROR",
    r"bent DescribeTopicPartitions, topics\[0\]\.name = '' v0: ":
        "INVALID_TOPIC_EXCEPTION, as for other wrong names; Kafka fails with UNKNOWN_SERVER_ERROR",
    r"IncrementalAlterConfigs(, .*config_operation = \S+)? v[\d,-]+: .*error_message: Kafka None":
        "an operation that is none is told so in words",
    r"bent CreatePartitions, topics\[0\]\.count = 2147483647 .*Kafka \[-1, None\], kstore \[37,":
        "INVALID_PARTITIONS; Kafka fails with UNKNOWN_SERVER_ERROR",
    r"bent AlterUserScramCredentials, .*salted_password = '' v0: .*\[-1, None\], kstore \[93":
        "UNACCEPTABLE_CREDENTIAL; Kafka fails with UNKNOWN_SERVER_ERROR",
    r"bent DescribeLogDirs, topics doubled ": "a partition that is asked twice is told twice",
    # Requests that no client sends
    r"bent .* claims 4294967295 v[\d,-]+: ":
        "a length above 2^31 is refused; to Kafka it is negative and so null",
    r"a client id of negative length": "refused; to Kafka every negative length is null",
    r"bent (Produce|Fetch), \S+ = null v[\d,-]+: : Kafka 'closed'":
        "null where an array or a name must be counts as empty; Kafka closes the connection",
    r"bent Fetch, (cluster_id claims|replica_state.tags claims) .*: : Kafka 'closed'":
        "tagged fields that only followers send are skipped by their size, not looked into",
    r"bent Fetch, (max_bytes|\S+partition_max_bytes|session_id) = -?\d+ "
    r"v[\d,-]+: (error_code.*Kafka.*-1|session_id|responses|.*error_code)":
        "a negative size is 0, and a session is not looked for when it is being closed; Kafka "
        "fails with UNKNOWN_SERVER_ERROR",
    r"bent (AlterConfigs, resources|WriteTxnMarkers, markers\S* ?\S*) doubled .*'no answer'":
        "what is named twice is answered; Kafka never answers",
    r"bent (AddPartitionsToTxn, transactions = \[\]|Produce, \S+records = null) .*'no answer'":
        "nothing to do is answered; Kafka never answers",
    r"bent EndTxn, .*: (Kafka \[51, -1, -1\], kstore \[0, |error_code: Kafka 51, kstore 90)":
        "Kafka answers before its markers are written, so the next EndTxn may come too early",
    r"bent WriteTxnMarkers, ":
        "brokers send it, with producer ids and epochs that exist; others are refused",
    r"bent (OffsetCommit|TxnOffsetCommit), topics doubled ":
        "a topic that is named twice has one row in the answer; Kafka gives two",
    r"bent DeleteGroups, groups_names\[0\] = '' ":
        "whether there is a group without a name depends on the probes that ran before",
    r"bent AlterReplicaLogDirs, .* = a long name ":
        "a name that can't be is unknown; Kafka fails with UNKNOWN_SERVER_ERROR",
    # Structures from seeds
    r"drawn (Txn)?OffsetCommit, .*: ([\w-]* again|topics: |topics\.\S*( again)?: |\S+, .* again)":
        "a topic that is named twice has one row in the answer; Kafka gives two",
    r"drawn AddPartitionsToTxn, .*( again|Kafka None, kstore .*'results_by_partition': \[\])":
        "what is named twice is answered twice, and a topic without partitions is answered; Kafka "
        "answers once, and leaves it out",
    r"drawn EndTxn, .*Kafka \[51, -1, -1\], kstore \[0, ":
        "Kafka answers before its markers are written, so the next EndTxn may come too early",
    r"drawn DescribeLogDirs, .* again": "a partition that is asked twice is told twice",
    r"drawn DescribeQuorum, .* v2: CONTROLLER, PLAINTEXT: ":
        "kstore's controller is reached on the broker's own listeners",
    r"drawn DescribeTopicPartitions, .*: Kafka \[-1, ":
        "a wrong name is refused alone; Kafka fails with UNKNOWN_SERVER_ERROR for all topics",
    r"drawn ShareGroupHeartbeat, .* v1: error_message: Kafka None": "an error says why in words",
    r"drawn Metadata, .*error_code, partitions: Kafka \[3, ":
        "Kafka answers UNKNOWN_TOPIC_OR_PARTITION and creates the topic behind the answer; kstore "
        "has created it by then",
    r"drawn AlterShareGroupOffsets, .*(Kafka \[-1, | again|kstore \S*\{'.*'partitions': \[\])":
        "what is named twice, is unknown or has no partitions has its own row; Kafka gives one "
        "row, or none, or fails",
    # Produce: [8] to [27] are the flaws of probes/data.py in their order, one less from version 13
    r"Produce v[\d,-]+: \[1[34]\]\."
    r".*(error_code: Kafka 0, kstore 87|offset: Kafka \d+, kstore -1)":
        "offset deltas that do not start at 0 are refused; Kafka looks only in compressed batches",
    r"Produce v[\d,-]+: \[(2\d|3[2345])\]\..*base_offset: Kafka \d+, kstore \d+":
        "behind batches that only one of them took, the offsets are others",
    r"bent Produce, with .* v13: \S+base_offset: Kafka \d+, kstore \d+":
        "behind a request whose huge length only Kafka took for null, the offsets are others",
    r"Structures of flawed batches v[\d,-]+: .*\.log_start_offset":
        "beside an error, Kafka gives the log start offset for some errors only",
    r"Structures of flawed batches v[\d,-]+: .*error_code: Kafka (2|10), kstore (2|87)":
        "a control batch, and what stands behind a batch, is refused before the batch's size and "
        "checksum are looked at",
    r"(Produce.*|Structures of flawed batches) v[\d,-]+: \S+error_message: "
    r"Kafka None, kstore '<some>'": ("bytes that are no batch are told so in words"),
    r"Produce v[\d,-]+: \[2[0123]\]\..*Kafka -1, kstore 76":
        "an unknown codec is UNSUPPORTED_COMPRESSION_TYPE; Kafka fails with UNKNOWN_SERVER_ERROR",
    r"Produce v[\d,-]+: \[(\d|1[3459]|18|2[123]|3[12])\]\..*\.log_start_offset":
        "beside an error, Kafka gives the log start offset for some errors only",
    r"Produce, transactional v[\d,-]+: .*\.log_start_offset: Kafka 0, kstore -1":
        "beside an error, Kafka gives the log start offset for some errors only",
    r"Produce, transactional v[\d,-]+: .*error_message: Kafka '<some>', kstore None":
        "what the coordinator of transactions refuses comes without words",
    r"Produce, (idempotent|transactional) v.*log_append_time_ms: Kafka '<some>', kstore -1":
        "a duplicate's answer has no append time with CreateTime; Kafka gives the batch's "
        "timestamp",
    # Fetch and offsets
    r"Fetch v[\d,-]+: .*\.records: Kafka '[1-9]\d* bytes .*kstore '[1-9]\d* bytes":
        "kstore cuts an answer between batches; Kafka sends the torn start of the next one too, "
        "which clients throw away",
    r"FetchRequest.*\.records: Kafka '(\d+) bytes \w+', kstore '\1 bytes":
        "a transaction's marker has the time of its end, so the bytes are others, not their number",
    r"Fetch.*\.aborted_transactions: Kafka None, kstore \[\]":
        "no aborted transactions: an empty list beside every error, not null beside some",
    r"bent Fetch, replica_id = \d+ v12: aborted_transactions, leader_epoch, leader_id: ":
        "the leader is told beside an error; no follower has that id",
    r"Fetch v[\d,-]+: \[22\]":
        "negative partition bytes count as 0; Kafka fails with UNKNOWN_SERVER_ERROR",
}  # fmt: skip
