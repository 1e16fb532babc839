"""Streaming pipelines on a cluster, while all they need is killed again and again; then every row is counted."""
