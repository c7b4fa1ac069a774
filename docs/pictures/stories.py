"""What goes wrong without each of the five documents, as a picture."""

from __future__ import annotations

from docs.pictures.drawing import Picture

__all__ = ["PICTURES"]

PICTURES = {
    "kip-391": Picture(
        "Without KIP-391 a copier that starts again doubles records and shifts offsets",
        ("source", "copier", "copy"),
    )
    .log("source", ("A", "B", "marker", "C", "D"))
    .says("source", "copier", "A, B")
    .says("copier", "copy", "A, B")
    .note("The copier dies before it notes its position.", "The next one starts again at 0.")
    .says("source", "copier", "A, B, C, D")
    .says("copier", "copy", "A, B, C, D", bad=True)
    .log("copy without KIP-391", ("A", "B", "A", "B", "C", "D"), bad=(2, 3, 4, 5))
    .note("A group at offset 3 continues with B, not with C.", kind="bad")
    .log("copy with KIP-391", ("A", "B", "", "C", "D"))
    .note(
        "The copy refuses A at offset 0, and says that it ends at 2.",
        "The copier continues there.",
        kind="good",
    ),
    "kip-232": Picture(
        "Without KIP-232 a consumer does not notice that its topic is another one",
        ("consumer", "topic"),
    )
    .log("the first topic orders", ("old-0", "old-1", "old-2"))
    .says("topic", "consumer", "old-0, old-1, old-2")
    .note("orders is deleted, and created again.")
    .log("the second topic orders", ("new-0", "new-1", "new-2", "new-3", "new-4"), bad=(0, 1, 2))
    .says("consumer", "topic", "Fetch from offset 3", bad=True)
    .says("topic", "consumer", "new-3, new-4", bad=True)
    .note("new-0 to new-2 are never read, and nothing fails.", kind="bad")
    .note(
        "With KIP-232 the answer has another partition epoch",
        "than the position: the consumer gets an error.",
        kind="good",
    ),
    "kip-359": Picture(
        "Without KIP-359 a leader that was replaced accepts records that are lost later",
        ("producer", "broker 1", "broker 2"),
    )
    .note("Broker 1 leads with epoch 0. Then the others cannot", "reach it any more. Clients can.")
    .note(
        "Broker 2 is elected (epoch 1), then broker 1 again",
        "(epoch 2). Broker 1 hears of neither.",
    )
    .says("producer", "broker 1", "Produce R")
    .says("broker 1", "producer", "written at offset 0", bad=True)
    .note("Broker 1 wrote R with epoch 0. No follower copies it.")
    .note(
        "Broker 2 is elected again (epoch 3). Broker 1 comes",
        "back, and cuts its log to broker 2's.",
    )
    .log("the log", ("later",))
    .note("R was acknowledged, and is gone.", kind="bad")
    .note(
        "With KIP-359 the producer says epoch 2. Broker 1",
        "knows epoch 0 only: UNKNOWN_LEADER_EPOCH.",
        "The producer keeps R, and broker 2 gets it.",
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
        "Consumers read partitions independently of each other:",
        "shipped may be read before created and paid.",
        kind="bad",
    )
    .note(
        "With KIP-253 partition 1 knows where partition 0 ended",
        "when the topic grew. A group reads up to there first.",
        kind="good",
    ),
    "contraction": Picture(
        "If partitions were just given up, records of a moved key would be read out of order",
        ("producer", "partition 0", "partition 1"),
    )
    .says("producer", "partition 1", "created")
    .says("producer", "partition 1", "paid")
    .note("The topic shrinks from two partitions to one.", "The key moves to partition 0.")
    .says("producer", "partition 0", "shipped")
    .log("partition 0", ("shipped",), bad=(0,))
    .log("partition 1", ("created", "paid"))
    .note("A group that still reads partition 1 may read", "shipped before created.", kind="bad")
    .note(
        "kstore first lets all groups read partition 1 to its end.",
        "A group that comes later gets partition 1 first.",
        kind="good",
    ),
    "kafka-19779": Picture(
        "Without KAFKA-19779 a rightful commit is refused because the group is rebalancing",
        ("member A", "coordinator", "member B"),
    )
    .says("coordinator", "member A", "epoch 1: P0, P1")
    .note("A begins a transaction at epoch 1.")
    .says("member B", "coordinator", "joins")
    .says("coordinator", "member A", "give P1 away")
    .says("coordinator", "member B", "P1, epoch 2")
    .note("A is at epoch 2 now, and P0 is still its own.")
    .says("member A", "coordinator", "P0, epoch 1")
    .says("coordinator", "member A", "ILLEGAL_GENERATION", bad=True)
    .note("The transaction aborts, and its work is lost.", kind="bad")
    .note(
        "With KAFKA-19779 the coordinator knows that A has P0",
        "since epoch 1, and accepts the commit. A commit",
        "of P1 with epoch 1 is refused, as before.",
        kind="good",
    ),
}
"""A page's name to its picture."""
