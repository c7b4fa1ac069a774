"""Facts about a validated batch's records, without decoding them; only for C."""
