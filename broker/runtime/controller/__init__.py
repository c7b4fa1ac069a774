"""The controller as a running part: its store, its channels to the brokers, elections and topics.
It touches no log.

May import: kstore.broker.coordination, kstore.broker.runtime, kstore.broker.state, kstore.errors,
    kstore.protocol, kstore.types.
"""
