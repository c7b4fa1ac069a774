"""Messages about logs: Produce, Fetch, ListOffsets, leader epochs, DeleteRecords, log dirs. In a
broker, kstore._fast.broker reads Produce and Fetch instead.

May import: kstore.protocol.
"""
