"""Members of consumer groups that ask for messages over HTTP, a request at a time."""
