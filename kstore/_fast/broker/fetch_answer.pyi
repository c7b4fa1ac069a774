"""The pieces of a Fetch response; see fetch_answer.pyx."""
