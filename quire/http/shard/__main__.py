"""Runs shards: a broker of a cluster starts this, with a socket."""

import socket
import sys

from quire.http.http_api import HttpApi
from quire.server.cluster.shard_process import run

if __name__ == "__main__":
    channel = socket.socket(fileno=int(sys.argv[1]))
    sys.exit(run(channel, lambda internal, seat: HttpApi(internal, seat=seat)))
