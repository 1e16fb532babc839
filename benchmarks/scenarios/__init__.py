"""Scenarios that a broker must pass: each measures a broker of its own, and says which promises were kept."""
