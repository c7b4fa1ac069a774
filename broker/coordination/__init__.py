"""The coordination store: a small tree of versioned nodes with ZooKeeper semantics, its three
forms, and where the brokers' nodes stand in it. It knows no partition's log and no request.

May import: kstore._fast.record, kstore._fast.shared, kstore.broker.state.metadata, kstore.config,
    kstore.log.index, kstore.private_files.
"""
