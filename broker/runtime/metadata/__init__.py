"""What this broker knows of the cluster beside topics: dynamic configs, features, partition
nodes, and the updates of its image. It leads and follows nothing.

May import: kstore._fast.broker, kstore.broker.coordination, kstore.broker.runtime.broker,
    kstore.broker.runtime.replication, kstore.broker.runtime.slices,
    kstore.broker.state.linear_regex, kstore.broker.state.metadata, kstore.config,
    kstore.protocol.controller, kstore.types.
"""
