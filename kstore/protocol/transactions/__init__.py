"""Messages of transactions: producer ids, partitions, ends, markers, and what administrators ask.
It knows no transaction's state.

May import: kstore.protocol.
"""
