"""How the pages look, and the few scripts in them. No text of a client is ever part of either."""

from pathlib import Path

_HERE = Path(__file__).parent

STYLE = (_HERE / "console.css").read_text()
HEAD = f"<script>{(_HERE / 'console.js').read_text()}</script>"

# Colours of the plots: they are legible on a light and on a dark ground.
IN, OUT, DEPTH, AGE = "#2a9d8f", "#5b7fd6", "#c58b2a", "#b26bb0"
GROUND = "#8793a3"  # axes and their labels
LINES = "rgba(128, 140, 155, 0.18)"
BAD = "#d9534f"

ICONS = {
    "overview": "speed", "topology": "account_tree", "queues": "view_list", "topics": "campaign",
    "streams": "waves", "durables": "bookmark", "groups": "groups", "connections": "lan", "schedule": "schedule",
    "transactions": "handshake", "users": "person", "rules": "rule", "tokens": "key", "policies": "tune",
    "store": "storage", "log": "article",
}  # fmt: skip
