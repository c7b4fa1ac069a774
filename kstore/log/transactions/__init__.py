"""Atomic appends to several logs of one log dir, also after a crash: a journal has the decided
transaction, and the next process completes it.

May import: kstore._fast.log, kstore.env, kstore.items, kstore.log, kstore.record, kstore.types.
"""
