"""What the broker sees of itself every few seconds: rates, history, what needs attention."""
