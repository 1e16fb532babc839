"""Runs shards: a broker of a cluster starts this as a process, with a socket."""

import socket
import sys

from quire.http.app import encoded_document
from quire.http.http_api import HttpApi
from quire.server.cluster.shard_process import run

if __name__ == "__main__":
    encoded_document()  # once for all that are forked
    channel = socket.socket(fileno=int(sys.argv[1]))
    sys.exit(run(channel, lambda internal, context: HttpApi(internal, context=context)))
