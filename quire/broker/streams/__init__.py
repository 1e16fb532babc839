"""Streams: partitions, offsets, reads of ranges, retention."""
