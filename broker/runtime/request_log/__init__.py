"""What is told of single requests: the request log, the log of slow requests, and traces. Which
requests those are is decided by settings that can change while the broker runs.

May import: kstore._fast.network, kstore.broker.runtime, kstore.protocol.
"""
