"""Requests to and from the controller: LeaderAndIsr and its kin, reassignments, the quorum,
forwarding. It is served to brokers, or handed to the controller.

May import: kstore.broker.api, kstore.broker.api.metadata, kstore.broker.api.requests,
    kstore.broker.api.security, kstore.broker.coordination, kstore.broker.runtime.broker,
    kstore.broker.runtime.controller, kstore.broker.runtime.membership,
    kstore.broker.runtime.metadata, kstore.broker.runtime.peers, kstore.broker.state.controller,
    kstore.errors, kstore.protocol, kstore.protocol.controller, kstore.protocol.metadata,
    kstore.types.
"""
