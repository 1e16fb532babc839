"""The settings: each with its type, default and meaning, and its origin: flag, environment, TOML file or default."""

from quire.settings.composites import Composite, Forward
from quire.settings.key import Key, Setting
from quire.settings.keys import KEYS, HttpSettings, Settings, broker_file, store_url
from quire.settings.kinds import split_address
from quire.settings.load import commented_file, explain, load
from quire.settings.policies import Policies
from quire.settings.policy import Policy

__all__ = [
    "KEYS", "Composite", "Forward", "HttpSettings", "Key", "Policies", "Policy", "Setting", "Settings", "broker_file",
    "commented_file", "explain", "load", "split_address", "store_url",
]  # fmt: skip
