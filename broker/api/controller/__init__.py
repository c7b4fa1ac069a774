"""Requests to and from the controller: LeaderAndIsr and similar requests, reassignments, the
quorum, and forwarding to the controller.

May import: kstore._fast.network, kstore.broker.api, kstore.broker.coordination,
    kstore.broker.runtime, kstore.broker.state.controller, kstore.broker.state.metadata,
    kstore.errors, kstore.protocol, kstore.types.
"""
