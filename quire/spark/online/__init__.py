"""Reading from a running broker: what there is, and the messages, from its bulk server."""
