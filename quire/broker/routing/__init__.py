"""From the text of a destination to what takes a message."""
