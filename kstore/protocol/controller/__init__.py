"""Messages between brokers and the controller: LeaderAndIsr and similar requests, reassignments,
envelopes, voters. It keeps no state of partitions.

May import: kstore.protocol.
"""
