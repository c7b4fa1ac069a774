"""Compares kstore with its alternatives, in one run and in turns: `python -m bench`."""
