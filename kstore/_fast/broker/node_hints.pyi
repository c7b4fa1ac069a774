"""KIP-951: the leader of a partition, and its address; see node_hints.pyx."""
