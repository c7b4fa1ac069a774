"""Why a batch of a Produce request is not appended; compiled code only."""
