"""Reports of single requests: the request log, the log of slow requests, and traces. Settings that
can change at run time select the requests.

May import: kstore._fast.network, kstore.broker.runtime, kstore.protocol.
"""
