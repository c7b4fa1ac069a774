"""Messages of transactions: producer ids, partitions, ends, markers, and administration. It keeps
no state of transactions.

May import: kstore.protocol.
"""
