"""Kafka's wire protocol in C: frames, buffers of answers, and messages decoded and encoded by
plan. It knows no log and no API.

May import: kstore._fast.record, kstore.errors.
"""
