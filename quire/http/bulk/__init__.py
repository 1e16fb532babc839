"""Reading in bulk beside a running broker: a process of its own, which the broker starts when it is asked for it."""
