"""The script for spark-submit; nothing is imported from here.

May import: kstore.cli.
"""
