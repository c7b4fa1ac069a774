"""A broker as a member of its cluster: registration, sessions, outages of the coordination store,
and its start. It decides nothing about partitions; the controller does.

May import: kstore.broker.coordination, kstore.broker.runtime.broker,
    kstore.broker.runtime.controller, kstore.broker.runtime.coordinators,
    kstore.broker.runtime.log_dirs, kstore.broker.runtime.metadata, kstore.broker.runtime.quotas,
    kstore.broker.runtime.replication, kstore.broker.runtime.security,
    kstore.broker.runtime.topics, kstore.broker.state.metadata, kstore.config, kstore.errors,
    kstore.log, kstore.protocol, kstore.protocol.controller, kstore.types.
"""
