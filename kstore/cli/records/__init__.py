"""Commands that move or look at records: produce, consume, replicate, verify-order, log. They
keep no state of their own.

May import: kstore.cli, kstore.clients, kstore.errors, kstore.log, kstore.types.
"""
