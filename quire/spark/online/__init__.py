"""Requests to a running broker: to its HTTP API, and to the bulk server beside it."""
