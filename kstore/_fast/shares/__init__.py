"""What share groups have acquired of a partition, and who waits for more of it. It knows offsets,
states and times; it reads no log and no clock.

May import: kstore._fast.broker, kstore._fast.error_codes, kstore._fast.record.memory.
"""
