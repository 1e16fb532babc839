"""The settings: every key with its type, default and meaning, and where a value comes from.

A flag stands over the environment, the environment over the file, the file over the default. The file is TOML. The
variable of ``stomp.address`` is ``QUIRE_STOMP__ADDRESS``. What is no setting is an error with a suggestion.
"""

from quire.settings.keys import KEYS, Key, Settings, broker_file, store_url
from quire.settings.kinds import split_address
from quire.settings.load import Setting, commented_file, explain, load

__all__ = [
    "KEYS",
    "Key",
    "Setting",
    "Settings",
    "broker_file",
    "commented_file",
    "explain",
    "load",
    "split_address",
    "store_url",
]
