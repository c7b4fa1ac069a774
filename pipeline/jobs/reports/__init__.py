"""Reports of verifications and of topics' statistics: tables, Parquet, and HTML pages without a
script. Only the jobs ask brokers.

May import: kstore.clients.admin, kstore.pipeline.jobs, kstore.types.
"""
