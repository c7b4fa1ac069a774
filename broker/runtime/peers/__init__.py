"""Connections to other brokers, what is asked over them, and requests handed to the controller.
It knows no partition.

May import: kstore._fast.protocol, kstore.broker.coordination, kstore.broker.runtime,
    kstore.broker.state.metadata, kstore.errors, kstore.net, kstore.protocol, kstore.version.
"""
