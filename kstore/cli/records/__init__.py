"""Commands that copy or show records: produce, consume, scan, replicate, verify-order, log. They
keep no state of their own.

May import: kstore, kstore.cli, kstore.clients, kstore.errors, kstore.log,
    kstore.pipeline.scanning, kstore.types.
"""
