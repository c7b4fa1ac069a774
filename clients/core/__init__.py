"""What the clients decide, without sockets, clocks and threads: versions, metadata, batches."""
