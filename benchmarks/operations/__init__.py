"""Measurements of large operations."""
