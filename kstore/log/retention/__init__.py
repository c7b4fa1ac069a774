"""Shortens logs: retention by time and size, deletion before an offset, truncation, and Kafka's log
cleaner. Only truncation affects records above the high watermark.

May import: kstore._fast.log, kstore._fast.record, kstore.log, kstore.record.
"""
