"""One partition of __consumer_offsets as a pure shard: it finds the group of a request, and handles
administration and commits. broker.runtime.groups runs it.

May import: kstore.broker.state, kstore.errors, kstore.protocol.
"""
