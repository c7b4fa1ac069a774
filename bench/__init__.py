"""Measures kstore beside what it stands in for, in one run and in turns: `python -m bench`."""
