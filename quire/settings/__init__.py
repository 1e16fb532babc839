"""The settings: every key with its type, default and meaning, and where a value comes from.

A flag stands over the environment, the environment over the file, the file over the default. The file is TOML. The
variable of ``stomp.address`` is ``QUIRE_STOMP__ADDRESS``. What is no setting is an error with a suggestion. How a
destination is treated, its policy says: ``Settings.policies``.
"""

from quire.settings.composites import Composite, Forward
from quire.settings.key import Key, Setting
from quire.settings.keys import KEYS, HttpSettings, Settings, broker_file, store_url
from quire.settings.kinds import split_address
from quire.settings.load import commented_file, explain, load
from quire.settings.policies import Policies
from quire.settings.policy import Policy

__all__ = [
    "KEYS",
    "Composite",
    "Forward",
    "HttpSettings",
    "Key",
    "Policies",
    "Policy",
    "Setting",
    "Settings",
    "broker_file",
    "commented_file",
    "explain",
    "load",
    "split_address",
    "store_url",
]
