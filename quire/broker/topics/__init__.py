"""Topics: plain and durable subscriptions over one stored body."""
