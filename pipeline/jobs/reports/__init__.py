"""What a verification and the statistics of topics are told as: tables, Parquet, and HTML pages
without a script. It asks no broker but through the jobs.

May import: kstore.clients.admin, kstore.pipeline.jobs, kstore.types.
"""
