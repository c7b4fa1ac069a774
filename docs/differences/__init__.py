"""The tables of what kstore does otherwise than Apache Kafka 4.3.1, and the page made from them.

To record a difference, add a row to the table of its area and run ``python -m docs.differences``.
"""
