"""Reports single requests: the request log, the log of slow requests, and traces. Dynamic settings
select the requests.

May import: kstore._fast.network, kstore.broker.runtime, kstore.protocol.
"""
