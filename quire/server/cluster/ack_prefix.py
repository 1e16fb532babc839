"""What tells which shard an acknowledgement is about."""


def ack_prefix(shard: int) -> bytes:
    """What the ids of acknowledgements begin with that are of another shard than the client's process."""
    return b"s%d~" % shard
