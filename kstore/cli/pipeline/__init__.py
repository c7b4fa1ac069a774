"""`kstore pipeline`: the command line of the jobs. It imports Spark only when a job runs.

May import: kstore.cli, kstore.clients, kstore.pipeline.columns, kstore.pipeline.jobs,
    kstore.record.
"""
