"""Whole brokers and their clients in one process under virtual time, with faults, from a seed."""
