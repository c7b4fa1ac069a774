"""What this broker knows of the cluster beside topics: dynamic configs, features, and the
updates of its image. It leads and follows nothing.

May import: kstore._fast.broker, kstore.broker.coordination, kstore.broker.runtime,
    kstore.broker.state, kstore.config, kstore.protocol.controller, kstore.types.
"""
