"""What a broker counts and measures, for Prometheus: kstore's own names, and those that
jmx_exporter's rules for Kafka and kafka_exporter give, so that existing boards find them.

`page.py` puts the page together from the other files, a family at a time. Only `loop_stall` is
loaded where there is no HTTP listener.

May import: kstore._fast.broker, kstore._fast.disk, kstore._fast.network, kstore.broker.runtime,
    kstore.broker.state, kstore.config, kstore.errors, kstore.log, kstore.protocol, kstore.version.
"""
