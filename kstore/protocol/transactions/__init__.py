"""Messages of transactions: producer ids, partitions, ends, markers, and administration. It knows
no transaction's state.

May import: kstore.protocol.
"""
