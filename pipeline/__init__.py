"""kstore.pipeline."""

if __name__ != "kstore.pipeline":
    raise ImportError("this package is imported as kstore.pipeline, not as " + repr(__name__))
