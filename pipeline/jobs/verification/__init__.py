"""Compares two sides, clusters or archives: first blocks, then single records, and order per key.
It changes neither side.

May import: kstore.clients.core, kstore.pipeline.jobs, kstore.types.
"""
