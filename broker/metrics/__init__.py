"""A broker's metrics for Prometheus: kstore's own names, and the names that jmx_exporter's rules
for Kafka and kafka_exporter use, so that existing dashboards work.

`page.py` joins the families of the other files into a page. Without an HTTP listener, only
`loop_stall` is loaded.

May import: kstore._fast.broker, kstore._fast.disk, kstore._fast.network, kstore.broker.runtime,
    kstore.broker.state, kstore.config, kstore.errors, kstore.log, kstore.protocol, kstore.version.
"""
