"""A broker with users and TLS, attacked by those who have no login: ``python -m benchmarks.intruders``."""
