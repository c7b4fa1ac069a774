"""Records of the coordinators in __consumer_offsets and __transaction_state: their classes, and
how keys and values are framed. It decides nothing about what a record does to a state;
broker.state does.

May import: kstore.errors, kstore.protocol.
"""
