"""STOMP 1.0, 1.1 and 1.2 (https://stomp.github.io): codec, versions and states."""
