"""Record batches in C: building, walking, checking, compressing, and records as columns. It knows
no file, clock or connection.

May import: kstore._fast.error_codes, kstore._fast.record.buffer, kstore.types.
"""
