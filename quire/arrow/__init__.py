"""From store records to Arrow record batches, for bulk reads."""
