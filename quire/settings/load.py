"""Where values come from: the file, the environment, the flags."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from quire.errors import InsecureAddress, InvalidSettings, QuireError
from quire.settings.composites import read_composites
from quire.settings.key import Refused, Setting, throw, unknown
from quire.settings.keys import KEYS, SECTIONS, Settings
from quire.settings.kinds import is_loopback, split_address
from quire.settings.policies import Policies, read_policies
from quire.settings.rules import read_rules
from quire.settings.users import read_users

ENTRIES = ("policies", "composites", "users", "rules")
"""What the file has besides keys: arrays of tables."""

LAST_PORT = 65535

EXAMPLES = """
# Policies of some destinations: a pattern, and any keys of [policy]. Of several entries that match, the most
# specific one wins, key by key. Without queue:// or topic:// an entry applies to both.

#[[policies]]
#destination = "queue://orders.>"
#maximum_redeliveries = 3
#dead_letter_strategy = "individual"

# Composite destinations: the broker forwards their messages to other destinations.

#[[composites]]
#queue = "orders"
#forward_to = ["queue://billing", {destination = "topic://orders.large", selector = "amount > 1000"}]
#forward_only = true

# Users: add password_hash = "...", which `quire user hash` prints, or certificates = ["CN=alice"]. `quire user add`
# makes users while the broker runs.

#[[users]]
#name = "alice"
#roles = ["monitor"]

# Access rules: without one that matches an action is refused, and of several that match a deny wins.

#[[rules]]
#subject = "user:alice"
#allow = ["read", "write", "create"]
#destination = "queue://orders.>"
"""


def faults(file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]) -> list[QuireError]:
    """All that ``load``, with the same arguments, would refuse; none if the settings are valid."""
    found: list[QuireError] = []
    try:
        load(file, environ, flags, found.append)
    except QuireError as error:
        found.append(error)
    return found


def load(
    file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object], refused: Refused = throw
) -> Settings:
    """Read the settings of a broker.

    Args:
        file: a TOML file, or None.
        environ: the environment.
        flags: values from the command line by key (``stomp.address``); None means not given.
        refused: is told each fault; by default the first is raised.

    Returns:
        The settings; flags override the environment, the environment overrides the file.

    Raises:
        InvalidSettings: a key is unknown or a value is not allowed; ``data`` has ``key``, ``value`` and ``origin``.
        InsecureAddress: an address is not loopback and ``insecure`` is false; ``data`` has ``key`` and ``address``.
    """
    found = explain(file, environ, flags, refused)
    values = {setting.key: setting.value for setting in found}
    document = _document(file)
    users = read_users(document.get("users", []), f"file {file}", refused)
    protected = values["insecure"] or values["security.enabled"] or values["jwt.issuer"]
    protected = protected or document.get("users") or _has_users(values)
    _check_addresses(values, bool(protected), refused)
    sections: dict[str, Any] = {
        name: section(**{part.name: values[f"{name}.{part.name}"] for part in fields(section)})
        for name, section in SECTIONS.items()
    }
    policies = Policies(
        sections.pop("policy"),
        read_policies(document.get("policies", []), f"file {file}", refused),
        {setting.key.removeprefix("policy."): setting.origin for setting in found},
    )
    composites = read_composites(document.get("composites", []), f"file {file}", refused)
    rules = read_rules(document.get("rules", []), f"file {file}", refused)
    return Settings(
        insecure=values["insecure"], policies=policies, composites=composites, users=users, rules=rules, **sections
    )


_ADDRESSES = tuple(f"{door}.address" for door in ("stomp", "openwire", "http", "bulk", "console", "cluster"))


def _check_addresses(values: Mapping[str, Any], protected: bool, refused: Refused) -> None:
    """Without users addresses are loopback ones. Each process of the bulk server has a port behind the one before."""
    for key in _ADDRESSES:
        if not protected and not is_loopback(split_address(values[key])[0]):
            text = f"{key} = {values[key]} is not loopback, and no users are configured"
            refused(InsecureAddress(text, key=key, address=values[key]))
    address, processes = values["bulk.address"], values["bulk.processes"]
    last = split_address(address)[1] + processes - 1
    if split_address(address)[1] and last > LAST_PORT:
        text = (
            f"bulk.processes = {processes} is not allowed: with bulk.address = {address} the last port would be {last}"
        )
        refused(InvalidSettings(text, key="bulk.processes", value=processes))


def _has_users(values: Mapping[str, Any]) -> bool:
    """Whether users were made while the broker ran before. If the file is damaged, the start says so later."""
    directory, file = values["store.data"], values["security.file"]
    try:
        return bool(json.loads((Path(file) if file else Path(directory) / "security.json").read_bytes())["users"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def explain(
    file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object], refused: Refused = throw
) -> list[Setting]:
    """Every setting with its value and origin, in the order of ``KEYS``; the arguments are those of ``load``."""
    found = {key.name: Setting(key.name, key.default, "default") for key in KEYS.values()}
    for name, value, origin in (*_from_file(file), *_from_environment(environ, refused), *_from_flags(flags)):
        try:
            if name not in KEYS:
                raise unknown(name, origin, (*KEYS, *ENTRIES))
            found[name] = KEYS[name].read(value, origin)
        except InvalidSettings as error:
            refused(error)
    bulk, http = found["bulk.address"], found["http.address"]
    if bulk.origin == "default" and http.origin != "default":  # clients of one are clients of the other
        found[bulk.key] = bulk._replace(value=http.value.rpartition(":")[0] + ":0", origin=http.key)
    return list(found.values())


def commented_file() -> str:
    """A settings file with every key, its default and its meaning, and examples of entries, all commented out."""
    lines = ["# Settings of a Quire broker. Each line shows a default; remove the # to change it."]
    section = ""
    for key in KEYS.values():
        head, dot, name = key.name.rpartition(".")
        if dot and head != section:
            section = head
            lines += ["", f"[{section}]"]
        lines += ["", f"# {key.text}", f"# Allowed: {key.kind.allowed}.", f"#{name} = {key.kind.write(key.default)}"]
    return "\n".join(lines) + "\n" + EXAMPLES


def _document(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # ValueError: no UTF-8, no TOML, too many digits
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidSettings(f"the settings file {file} cannot be read: {reason}", file=str(file)) from error


def _from_file(file: Path | None) -> Iterator[Setting]:
    for name, value in _document(file).items():
        if isinstance(value, dict) and name not in (*KEYS, *ENTRIES):
            yield from (Setting(f"{name}.{key}", inner, f"file {file}") for key, inner in value.items())
        elif name not in ENTRIES:
            yield Setting(name, value, f"file {file}")


def _from_environment(environ: Mapping[str, str], refused: Refused) -> Iterator[Setting]:
    names = {key.variable: key.name for key in KEYS.values()}
    slips = {variable.replace("__", "_"): variable for variable in names}
    for variable in sorted(name for name in environ if name.startswith("QUIRE_")):
        origin = f"environment {variable}"
        if variable in names:
            yield Setting(names[variable], environ[variable], origin)
        elif "__" in variable:
            refused(unknown(variable.removeprefix("QUIRE_").replace("__", ".").lower(), origin, KEYS))
        elif variable in slips:
            text = f"{variable} is not a setting; did you mean {slips[variable]}, with two underscores?"
            refused(InvalidSettings(text, key=names[slips[variable]], origin=origin))


def _from_flags(flags: Mapping[str, object]) -> Iterator[Setting]:
    return (Setting(name, value, "flag") for name, value in flags.items() if value is not None)
