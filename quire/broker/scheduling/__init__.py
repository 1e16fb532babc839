"""Messages that are sent later."""
