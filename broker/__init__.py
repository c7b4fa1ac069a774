"""kstore.broker."""

if __name__ != "kstore.broker":
    raise ImportError("this package is imported as kstore.broker, not as " + repr(__name__))
