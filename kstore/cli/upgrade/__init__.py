"""``kstore upgrade``: whether this version of kstore can take over data that another one has
written, and work beside brokers of another one. It changes nothing.

May import: kstore.broker.state.metadata, kstore.cli, kstore.clients, kstore.clients.admin,
    kstore.config, kstore.log.segments, kstore.protocol, kstore.version.
"""
