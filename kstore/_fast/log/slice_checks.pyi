"""Whether a slice of a segment may be sent. For Cython alone."""
