"""The web console: pages over the HTTP API of one or several brokers, in a process of its own."""
