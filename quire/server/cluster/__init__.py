"""The processes of a cluster: supervisor, shards, links between them."""
