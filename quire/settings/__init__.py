"""The settings: each with its type, default and meaning, and its origin: flag, environment, TOML file or default."""

from quire.settings.key import Key, Setting, is_loopback, is_own_name, local_host, split_address
from quire.settings.keys import (
    KEYS,
    BackupSettings,
    ClusterSettings,
    HttpSettings,
    JwtSettings,
    LimitSettings,
    Settings,
    TlsSettings,
    audit_file,
    broker_file,
    commented_file,
    explain,
    faults,
    load,
    local_token_file,
    security_file,
    store_url,
)
from quire.settings.policy import Composite, Forward, Policies, Policy
from quire.settings.users import ROLES, Action, Rule, User

__all__ = [
    "KEYS", "ROLES", "Action", "BackupSettings", "ClusterSettings", "Composite", "Forward", "HttpSettings",
    "JwtSettings", "Key", "LimitSettings", "Policies", "Policy", "Rule", "Setting", "Settings", "TlsSettings", "User",
    "audit_file", "broker_file", "commented_file", "explain", "faults", "is_loopback", "is_own_name", "load",
    "local_host", "local_token_file", "security_file", "split_address", "store_url",
]  # fmt: skip
