"""How a connection comes in: how many there may be, TLS if the client begins it, and then its protocol."""
