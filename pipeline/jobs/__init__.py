"""Jobs that run as programs of their own beside a broker: load a file and compare, and what ``make
run`` does.

Each can be started with ``python -m kstore.pipeline.jobs.<name>``; none is imported by a broker.
"""
