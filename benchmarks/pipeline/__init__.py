"""How fast Spark reads streams of a running broker, beside Kafka's source, and what that costs the broker."""
