"""The script for spark-submit; nothing is imported from here."""
