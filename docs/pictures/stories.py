"""What goes wrong without each of the five documents, as a picture."""

from __future__ import annotations

from docs.pictures.drawing import Picture

__all__ = ["PICTURES"]

PICTURES = {
    "kip-391": Picture(
        "Without KIP-391 a restarted copier duplicates records and shifts offsets",
        ("source", "copier", "copy"),
    )
    .log("source", ("A", "B", "marker", "C", "D"))
    .says("source", "copier", "A, B")
    .says("copier", "copy", "A, B")
    .note(
        "The copier crashes before it stores its position.", "It restarts, and begins at 0 again."
    )
    .says("source", "copier", "A, B, C, D")
    .says("copier", "copy", "A, B, C, D", bad=True)
    .log("copy without KIP-391", ("A", "B", "A", "B", "C", "D"), bad=(2, 3, 4, 5))
    .note("A group at offset 3 continues with B, not with C.", kind="bad")
    .log("copy with KIP-391", ("A", "B", "", "C", "D"))
    .note(
        "The broker refuses A at offset 0: the copy ends at 2.",
        "The copier continues at 2.",
        kind="good",
    ),
    "kip-232": Picture(
        "Without KIP-232 a consumer does not notice that its topic was replaced",
        ("consumer", "topic"),
    )
    .log("the first topic orders", ("old-0", "old-1", "old-2"))
    .says("topic", "consumer", "old-0, old-1, old-2")
    .note("orders is deleted and created again.")
    .log("the second topic orders", ("new-0", "new-1", "new-2", "new-3", "new-4"), bad=(0, 1, 2))
    .says("consumer", "topic", "Fetch from offset 3", bad=True)
    .says("topic", "consumer", "new-3, new-4", bad=True)
    .note("new-0 to new-2 are never read, and there is no error.", kind="bad")
    .note(
        "With KIP-232 the position has an older partition epoch",
        "than the answer: the consumer gets an error.",
        kind="good",
    ),
    "kip-359": Picture(
        "Without KIP-359 a replaced leader accepts records that are lost later",
        ("producer", "broker 1", "broker 2"),
    )
    .note(
        "Broker 1 leads with epoch 0. Then it loses contact",
        "with the other brokers. Clients can reach it.",
    )
    .note(
        "Broker 2 is elected (epoch 1), then broker 1 again",
        "(epoch 2). Broker 1 does not know about this.",
    )
    .says("producer", "broker 1", "Produce R")
    .says("broker 1", "producer", "written at offset 0", bad=True)
    .note("Broker 1 wrote R with epoch 0. No follower copies it.")
    .note(
        "Broker 2 is elected again (epoch 3). Broker 1 comes",
        "back, and truncates its log to match broker 2's.",
    )
    .log("the log", ("later",))
    .note("R was acknowledged, but is lost.", kind="bad")
    .note(
        "With KIP-359 the producer sends epoch 2. Broker 1",
        "knows only epoch 0: UNKNOWN_LEADER_EPOCH.",
        "The producer keeps R and sends it to broker 2.",
        kind="good",
    ),
    "kip-253": Picture(
        "Without KIP-253 records of a key are read out of order after an expansion",
        ("producer", "partition 0", "partition 1"),
    )
    .says("producer", "partition 0", "created")
    .says("producer", "partition 0", "paid")
    .note("The topic grows from one partition to two.", "The key moves to partition 1.")
    .says("producer", "partition 1", "shipped")
    .log("partition 0", ("created", "paid"))
    .log("partition 1", ("shipped",), bad=(0,))
    .note(
        "Consumers read partitions independently:",
        "shipped can be read before created and paid.",
        kind="bad",
    )
    .note(
        "With KIP-253 partition 1 knows where partition 0 ended",
        "when the topic grew. A group first reads up to there.",
        kind="good",
    ),
    "contraction": Picture(
        "If partitions were simply removed, records of a moved key would be read out of order",
        ("producer", "partition 0", "partition 1"),
    )
    .says("producer", "partition 1", "created")
    .says("producer", "partition 1", "paid")
    .note("The topic shrinks from two partitions to one.", "The key moves to partition 0.")
    .says("producer", "partition 0", "shipped")
    .log("partition 0", ("shipped",), bad=(0,))
    .log("partition 1", ("created", "paid"))
    .note("A group that still reads partition 1 can read", "shipped before created.", kind="bad")
    .note(
        "kstore first lets all groups read partition 1 to its end.",
        "A group that starts later gets partition 1 first.",
        kind="good",
    ),
    "kafka-19779": Picture(
        "Without KAFKA-19779 a valid commit is refused because the group is rebalancing",
        ("member A", "coordinator", "member B"),
    )
    .says("coordinator", "member A", "epoch 1: P0, P1")
    .note("A begins a transaction at epoch 1.")
    .says("member B", "coordinator", "joins")
    .says("coordinator", "member A", "give up P1")
    .says("coordinator", "member B", "P1, epoch 2")
    .note("A is now at epoch 2, and still has P0.")
    .says("member A", "coordinator", "P0, epoch 1")
    .says("coordinator", "member A", "ILLEGAL_GENERATION", bad=True)
    .note("The transaction aborts, and its work is lost.", kind="bad")
    .note(
        "With KAFKA-19779 the coordinator knows that A has had",
        "P0 since epoch 1, and accepts the commit. It still",
        "refuses a commit of P1 with epoch 1.",
        kind="good",
    ),
}
"""A page's name to its picture."""
