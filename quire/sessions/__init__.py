"""What a client's session is, once for all doors."""
