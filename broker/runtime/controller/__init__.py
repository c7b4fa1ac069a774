"""The running controller: its access to the coordination store, its channels to the brokers,
elections and topics. It does not touch logs.

May import: kstore.broker.coordination, kstore.broker.runtime, kstore.broker.state, kstore.errors,
    kstore.protocol, kstore.types.
"""
