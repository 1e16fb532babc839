"""The check of a store beside the broker that uses it, in a process of its own."""
