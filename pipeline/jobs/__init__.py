"""Jobs that run as programs of their own beside a broker. Two need no Spark: `load` (a file in, and
compared) and `run` (what ``make run`` does); `archive`, `restore`, `replicate`, and `verify` and
`stats` in the rooms below do. ``kstore pipeline`` is their command line; none is imported by a
broker.
"""
