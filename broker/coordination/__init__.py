"""The coordination store: a small tree of versioned nodes with ZooKeeper semantics."""
