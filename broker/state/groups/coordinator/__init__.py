"""One partition of __consumer_offsets: finds the group of a request, and handles commits and the
requests of administrators. broker.runtime.groups runs it.

May import: kstore.broker.state, kstore.errors, kstore.protocol.
"""
