"""The broker's data plane: Produce and Fetch from frame to answer, and the partition table. It
decides nothing that a Python part of the broker decides; who is asked is set from outside, and it
owns no connection (network does).

May import: kstore._fast.broker.rights, kstore._fast.disk, kstore._fast.error_codes,
    kstore._fast.log, kstore._fast.protocol, kstore._fast.record.
"""
