"""The order of the batches of a log; compiled code only."""
