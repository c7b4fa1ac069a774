"""`kstore pipeline`: the jobs' command line. It imports Spark only when a job runs.

May import: kstore.cli, kstore.cli.records, kstore.clients, kstore.clients.replicator,
    kstore.pipeline.jobs, kstore.record.
"""
