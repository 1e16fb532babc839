"""The operator's door: look at everything, and change it."""
