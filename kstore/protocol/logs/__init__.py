"""Messages about logs: Produce, Fetch, ListOffsets, leader epochs, DeleteRecords, log dirs. A
broker's Produce and Fetch are read by kstore._fast.broker instead.

May import: kstore.protocol.
"""
