"""The picture of who sends where, and who consumes."""
