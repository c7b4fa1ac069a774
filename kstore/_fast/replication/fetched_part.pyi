"""One partition's part of a Fetch answer, as a follower reads it; only for the fetcher."""
