"""kstore.clients."""

if __name__ != "kstore.clients":
    raise ImportError("this package is imported as kstore.clients, not as " + repr(__name__))
