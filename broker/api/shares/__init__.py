"""Requests of share groups (KIP-932): from members to partition leaders, and from brokers to the
share coordinator. The leaders and the coordinator make the decisions.

May import: kstore._fast.broker, kstore._fast.network, kstore.acls, kstore.broker.api,
    kstore.broker.runtime, kstore.broker.state, kstore.config, kstore.errors,
    kstore.protocol.shares.
"""
