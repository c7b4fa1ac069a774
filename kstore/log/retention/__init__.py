"""What makes a log shorter: retention by time and size, deletion before an offset, truncation,
and Kafka's log cleaner. It never touches what lies above the high watermark, but to truncate.

May import: kstore._fast.log, kstore._fast.record, kstore.log, kstore.record.
"""
