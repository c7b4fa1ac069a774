"""Appends to several logs of one log dir that are there wholly or not at all, also after a crash: a
journal says what is decided, and who comes next completes it.

May import: kstore._fast.log, kstore.env, kstore.items, kstore.log, kstore.record, kstore.types.
"""
