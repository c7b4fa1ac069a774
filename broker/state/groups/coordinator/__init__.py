"""One partition of __consumer_offsets as a pure shard: which group a request belongs to, what
administrators ask, and offsets as they are committed. It runs nothing; broker.runtime.groups
does.

May import: kstore.broker.state, kstore.errors, kstore.protocol.
"""
