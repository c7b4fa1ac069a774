"""Executes the broker's decisions: logs, replicas, topics, coordinators, on the loop and on the
disk.

May import: kstore._fast.broker, kstore._fast.network, kstore.broker.state, kstore.config,
    kstore.errors, kstore.log, kstore.protocol.
"""
