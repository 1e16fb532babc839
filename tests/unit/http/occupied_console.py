"""Stands in for a console whose address is in use, unless it may take any port."""

import json
import sys

address = sys.argv[sys.argv.index("--address") + 1]
if not address.endswith(":0"):
    print(json.dumps({"error": f"cannot listen on {address}", "code": "address-in-use"}), flush=True)
    sys.exit(1)
print(json.dumps({"address": "127.0.0.1:9999"}), flush=True)
sys.stdin.read()
