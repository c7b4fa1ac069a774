"""``kstore upgrade``: checks whether this version of kstore can open data of another version, and
work in a cluster with brokers of another version. It changes nothing.

May import: kstore.broker.state.metadata, kstore.cli, kstore.clients, kstore.clients.admin,
    kstore.config, kstore.log.segments, kstore.protocol, kstore.version.
"""
