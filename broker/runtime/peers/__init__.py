"""Connections to other brokers, requests over them, and forwarding to the controller. This room
does not know partitions.

May import: kstore._fast.protocol, kstore.broker.coordination, kstore.broker.runtime,
    kstore.broker.state.metadata, kstore.errors, kstore.net, kstore.protocol, kstore.version.
"""
