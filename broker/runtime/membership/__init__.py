"""A broker as a member of its cluster: registration, sessions, and outages of the coordination
store. A broker that is alone is one, too. It decides nothing about partitions; the controller does.

May import: kstore.broker.coordination, kstore.broker.runtime, kstore.broker.state, kstore.errors,
    kstore.protocol.
"""
