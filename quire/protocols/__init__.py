"""Wire protocols without input and output: bytes in, frames out, and the other way round."""
