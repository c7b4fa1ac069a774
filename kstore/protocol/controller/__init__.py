"""Messages between brokers and the controller: LeaderAndIsr and its kin, reassignments,
envelopes, voters. It knows no partition.

May import: kstore.protocol.
"""
