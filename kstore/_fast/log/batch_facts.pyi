"""What a log asks of a validated batch's records without decoding them; for C alone."""
