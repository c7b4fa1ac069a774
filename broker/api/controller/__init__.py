"""Requests to and from the controller: LeaderAndIsr and its kin, reassignments, the quorum,
forwarding. It is served to brokers, or handed to the controller.

May import: kstore._fast.network, kstore.broker.api, kstore.broker.coordination,
    kstore.broker.runtime, kstore.broker.state.controller, kstore.broker.state.metadata,
    kstore.errors, kstore.protocol, kstore.types.
"""
