"""The client: STOMP over a blocking socket."""
