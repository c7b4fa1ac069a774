"""Which batches of a Produce request a thread has to look into first; see produce_unpack.pyx."""
