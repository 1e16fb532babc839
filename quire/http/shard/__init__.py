"""The process of a shard, with its HTTP API."""
