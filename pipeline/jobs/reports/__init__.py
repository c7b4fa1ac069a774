"""Reports of verifications and of statistics of topics: tables, Parquet, and HTML pages without
scripts. Only the jobs send requests to brokers.

May import: kstore.clients.admin, kstore.pipeline.jobs, kstore.types.
"""
