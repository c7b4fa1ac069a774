"""One log as its parts see it (Kafka's LocalLog): its state in memory, how much of it is on the
disk, and its checkpoint in the index. It decides nothing about which segments there are.

May import: kstore._fast.disk, kstore._fast.log, kstore.env, kstore.errors, kstore.log,
    kstore.types.
"""
