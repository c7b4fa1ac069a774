"""The broker: it serves logs with Kafka's wire protocol, alone or as a part of a cluster."""

if __name__ != "kstore.broker":
    raise ImportError("this package is imported as kstore.broker, not as " + repr(__name__))
