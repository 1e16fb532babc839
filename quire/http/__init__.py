"""What operators see of a running broker over HTTP: the API of the command line, and the metrics."""
