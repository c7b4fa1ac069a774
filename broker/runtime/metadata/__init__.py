"""This broker's metadata: dynamic configs, features, and updates of its image. Topics are in
runtime/topics, replicas in runtime/replication.

May import: kstore._fast.broker, kstore._fast.network, kstore.acls, kstore.broker.coordination,
    kstore.broker.runtime, kstore.broker.state, kstore.config, kstore.protocol, kstore.types.
"""
