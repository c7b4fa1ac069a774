"""A broker as a member of its cluster: registration, sessions, outages of the coordination store,
and its start. It decides nothing about partitions; the controller does.

May import: kstore.broker.coordination, kstore.broker.runtime, kstore.broker.state.metadata,
    kstore.errors, kstore.protocol.
"""
