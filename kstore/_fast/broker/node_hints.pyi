"""KIP-951: the leader of a partition, and where it is; see node_hints.pyx."""
