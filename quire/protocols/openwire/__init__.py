"""The OpenWire codec, without input and output: bytes to commands and back, versions 1 to 12."""
