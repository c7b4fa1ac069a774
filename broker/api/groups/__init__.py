"""Requests of groups: FindCoordinator, the protocols of all kinds of groups, and offsets. The group
coordinator makes the decisions.

May import: kstore.acls, kstore.broker.api, kstore.broker.runtime, kstore.broker.state,
    kstore.config, kstore.errors, kstore.protocol, kstore.types.
"""
