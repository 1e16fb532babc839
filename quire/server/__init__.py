"""The broker as a process: the service, and one package per protocol."""
