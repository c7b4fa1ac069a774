"""One partition's part of a Fetch answer, as a follower reads it; for the fetcher alone."""
