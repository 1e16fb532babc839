"""OpenWire, the protocol of ActiveMQ's clients, on top of the broker."""
