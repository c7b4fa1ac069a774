"""What this broker knows of the cluster beside topics: dynamic configs, features, and the
updates of its image. It leads and follows nothing.

May import: kstore._fast.broker, kstore._fast.network, kstore.acls, kstore.broker.coordination,
    kstore.broker.runtime, kstore.broker.state, kstore.config, kstore.protocol, kstore.types.
"""
