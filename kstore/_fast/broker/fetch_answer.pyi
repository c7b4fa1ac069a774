"""The pieces of a Fetch answer; see fetch_answer.pyx."""
