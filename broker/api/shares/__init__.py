"""Requests of share groups (KIP-932): what members ask the leaders of partitions, and brokers the
share coordinator. It decides nothing; the leaders and the coordinator do.

May import: kstore._fast.broker, kstore._fast.network, kstore.acls, kstore.broker.api,
    kstore.broker.runtime, kstore.broker.state, kstore.config, kstore.errors,
    kstore.protocol.shares.
"""
