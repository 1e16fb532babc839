"""From store records to Arrow record batches, for those who read millions of them."""
