"""Kafka's wire protocol in C: frames, buffers of answers, and messages decoded and encoded by plan.
It knows nothing about logs and APIs.

May import: kstore._fast.record, kstore.errors.
"""
