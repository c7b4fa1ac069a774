"""The coordination store: a small tree of versioned nodes with ZooKeeper's semantics, its three
implementations, and the layout of the nodes. It does not know logs and requests.

May import: kstore._fast.record, kstore._fast.shared, kstore.broker.state.metadata, kstore.config,
    kstore.log.index, kstore.private_files.
"""
