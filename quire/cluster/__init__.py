"""A cluster of brokers: which shard has a destination, and which broker runs a shard."""
