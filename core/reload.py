"""SIGHUP, in the spawner's process: which settings count at once, and what is handed on.

The new file is checked whole; one that is wrong in anything changes nothing. What can only count
after a restart keeps its old value until then, in every process alike, and is named in the log.
One that looks cut short is taken only when it is asked for twice.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from core.config import Config, config_text, default_config_path, parse_config
from core.cut_short import cut_short
from core.errors import ConfigError, CoreError
from core.limits import LIMITS
from jail.host.messages import HostError
from jail.host.reloading import Fresh

LIVE = (
    "server.log_level",
    "hub.max_turns",
    "hub.max_turns_per_user",
    "hub.min_free_bytes",
    "hub.public_url",
    "access",
    "jail.start_timeout_s",
    *(f"jail.{name}" for name in LIMITS),
    "jail.users",
    *(f"pool.{name}" for name in ("idle_s", "memory_bytes", "free_bytes", "max_waiting", "wait_s", "users")),
    "edge",
    "agent",
    "usage.soft",
    "usage.hard",
    "vault.mount",
    "egress",
    "providers",
    "oauth",
    "verbs",
)
"""What counts at once. Certificates and keys too, where the listener speaks TLS before and after."""

TLS_FILES = ("hub-certificate", "hub-key", "admin-certificate", "admin-key")
REPLACEABLE = frozenset(("config", "provider-keys", *TLS_FILES))


class Reloader:
    """Knows the configuration in use. Its call is jail.host.spawner's ``reload``.

    Args:
        config: as started with.
        text: what the file said then.
        path: where the file lies; None: the default place.
        open_files: opens certificates, keys and the provider key file of a configuration, by flag.
        on_use: is given each configuration that is in use from now on.
    """

    def __init__(
        self,
        config: Config,
        text: str,
        path: Path | None,
        open_files: Callable[[Config], dict[str, int]],
        on_use: Callable[[Config], None] = lambda _: None,
    ) -> None:
        self._config = config
        self._text = text
        self._doubted = ""
        self._path = path
        self._open_files = open_files
        self._on_use = on_use

    def __call__(self) -> Fresh:
        """Read what is new. Raises HostError where the file or one that it names won't do."""
        try:
            text = config_text(self._path)
            written = parse_config(text, str(self._path or default_config_path()))
            self._doubt(text)
            # --data-dir, where it was given, stands in what we run with
            server = msgspec.structs.replace(written.server, data_dir=self._config.server.data_dir)
            written = msgspec.structs.replace(written, server=server)
            config, changed, later = merge_live(self._config, written)
            files = self._open_files(config)
        except CoreError as error:
            raise HostError(str(error)) from None
        core = {name: fd for name, fd in files.items() if name != "provider-keys"}
        egress = {name: fd for name, fd in files.items() if name == "provider-keys"}
        return Fresh(
            {"config": config_file(config), **core},
            {"config": config_file(config), **egress},
            REPLACEABLE,
            lambda: check_files(config, files),
            {"changed": changed, "after_restart": later},
            lambda: self._in_use(config, text),
        )

    def _doubt(self, text: str) -> None:
        why = "" if text == self._doubted else cut_short(self._text, text)
        self._doubted = text if why else ""
        if why:
            raise ConfigError(f"{why}: is it still being written? If it is meant so, send SIGHUP again")

    def _in_use(self, config: Config, text: str) -> None:
        self._config, self._text = config, text
        self._on_use(config)


def merge_live(old: Config, new: Config) -> tuple[Config, list[str], list[str]]:
    """What to run with: of the new what counts at once, of the old the rest.

    Returns it with the dotted keys that changed, and those that wait for a restart.
    """
    before, after = _flat(msgspec.to_builtins(old)), _flat(msgspec.to_builtins(new))
    live = [*LIVE]
    for name, was, will in (("hub", old.hub, new.hub), ("admin", old.admin, new.admin)):
        if was.tls_key and will.tls_key:
            live += [f"{name}.tls_certificate", f"{name}.tls_key"]
    changed: list[str] = []
    later: list[str] = []
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            (changed if _is_in(key, live) else later).append(key)
    merged: dict[str, Any] = msgspec.to_builtins(old)
    source: dict[str, Any] = msgspec.to_builtins(new)
    for key in live:
        section, _, name = key.partition(".")
        if name:
            merged[section][name] = source[section][name]
        else:
            merged[section] = source[section]
    return msgspec.convert(merged, Config), changed, later


def check_files(config: Config, files: Mapping[str, int]) -> str:
    """Read what was opened, in a process that ends afterwards; says what is wrong, or "".

    Closes the descriptors.
    """
    from core.egress.keyfile import read_provider_keys
    from core.egress.process import harden
    from core.hub.tls import Tls, read_tls

    harden()
    try:
        for name in ("hub", "admin"):
            if f"{name}-key" in files:
                Tls(name, read_tls(name, files))
        if "provider-keys" in files:
            read_provider_keys(files["provider-keys"], config.providers)
    except ConfigError as error:
        return str(error)
    return ""


def config_file(config: Config) -> int:
    """A memory file with a configuration, for one process: who shares one shares its place too."""
    fd = os.memfd_create("config", os.MFD_CLOEXEC)
    os.write(fd, msgspec.json.encode(config))
    return fd


def _is_in(key: str, live: list[str]) -> bool:
    return any(key == at or key.startswith(f"{at}.") for at in live)


def _flat(values: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            found |= _flat(value, f"{at}{key}.")
        else:
            found[f"{at}{key}"] = value
    return found
