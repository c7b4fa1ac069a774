"""Requests of groups: FindCoordinator, the protocols of groups of all kinds, offsets. The group
coordinator makes the decisions.

May import: kstore.acls, kstore.broker.api, kstore.broker.runtime, kstore.broker.state,
    kstore.config, kstore.errors, kstore.protocol, kstore.types.
"""
