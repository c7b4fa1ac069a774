"""A broker's membership in its cluster: registration, sessions, and outages of the coordination
store. A single broker has a membership, too. The controller decides about partitions.

May import: kstore.broker.coordination, kstore.broker.runtime, kstore.broker.state, kstore.errors,
    kstore.protocol.
"""
