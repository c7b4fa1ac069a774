"""The internal state of one log (Kafka's LocalLog): its state in memory, its durable end, and its
checkpoint in the index. It does not decide which segments exist.

May import: kstore._fast.disk, kstore._fast.log, kstore.env, kstore.errors, kstore.log,
    kstore.types.
"""
