"""Records of the coordinators in __consumer_offsets and __transaction_state: their classes, and the
format of keys and values. broker.state applies records to a state.

May import: kstore.errors, kstore.protocol.
"""
