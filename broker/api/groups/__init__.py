"""Requests of groups: FindCoordinator, the protocols of groups of all kinds, offsets. It
decides nothing; the group coordinator does.

May import: kstore.acls, kstore.broker.api, kstore.broker.runtime, kstore.broker.state,
    kstore.config, kstore.errors, kstore.protocol, kstore.types.
"""
