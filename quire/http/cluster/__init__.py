"""The HTTP API of a cluster: requests go to the shards that they concern, and their answers are joined."""
