"""The egress process: the only one with keys, and the only one that connects to the outside.

    python -I APP/core/egress/start.py --core FD --config FD --data-dir DIR [--provider-keys FD]
                                          [--master-key FD [--next-master-key FD]]

``--core`` is our end of the stream pair to core, ``--config`` the whole configuration as JSON
(msgspec's encoding of core.config.Config), ``--provider-keys`` the open key file,
``--master-key`` the open master key where it is kept elsewhere than in the data directory. Exit status: 0
at core's end or SIGTERM, 1 where the link or the vault broke, 2 for wrong arguments, 78 (EX_CONFIG)
where key file, master key or vault are not as they have to be: starting again changes nothing then.
"""

import argparse
import asyncio
import os
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import structlog

from core.config import Config
from core.egress.keyfile import read_descriptor, read_provider_keys
from core.egress.process import harden
from core.egress.secret import Secret
from core.egress.server import Egress
from core.errors import ConfigError
from core.log import configure_logging
from core.vault.errors import VaultError
from core.vault.key_source import HandedKeys
from core.vault.vault import Vault

EXIT_OK, EXIT_BROKEN, EXIT_CONFIG = 0, 1, 78
_MAX_CONFIG_BYTES = 1 << 20
_RESOLVER_THREADS = 32
_log = structlog.get_logger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run until core is gone; returns the exit status. The caller then ends the process: threads
    that look up names may linger.
    """
    arguments = _parser().parse_args(argv)
    os.umask(0o077)
    harden()
    configure_logging("info", "auto", "egress")
    core = socket.socket(fileno=arguments.core)
    core.setblocking(False)
    try:
        config = _read_config(arguments.config)
        configure_logging(config.server.log_level, config.server.log_format, "egress")
        keys: dict[str, Secret] = {}
        if arguments.provider_keys is not None:
            keys = read_provider_keys(arguments.provider_keys, config.providers)
        vault = Vault(arguments.data_dir / "_keys", source=_key_source(arguments))
    except (ConfigError, VaultError) as error:
        _log.error("egress_start_failed", reason=str(error))
        return EXIT_CONFIG
    loop = asyncio.new_event_loop()
    # a name that does not resolve holds a thread for as long as the system's resolver likes
    loop.set_default_executor(ThreadPoolExecutor(_RESOLVER_THREADS, "resolver"))
    return loop.run_until_complete(_run(config, vault, keys, core))


async def _run(config: Config, vault: Vault, keys: dict[str, Secret], core: socket.socket) -> int:
    error = await Egress(config, vault, keys).serve(core)
    if error is not None:
        _log.error("egress_ended", reason=str(error))
        return EXIT_BROKEN
    _log.info("egress_ended")
    return EXIT_OK


def _key_source(arguments: argparse.Namespace) -> HandedKeys | None:
    if arguments.master_key is None:
        return None
    return HandedKeys(arguments.master_key, arguments.next_master_key)


def _read_config(fd: int) -> Config:
    data = read_descriptor(fd, _MAX_CONFIG_BYTES, "the configuration")
    try:
        return msgspec.json.decode(data, type=Config)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"the configuration handed over is not one: {error}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="egress", description=__doc__, allow_abbrev=False)
    parser.add_argument("--core", type=int, required=True, metavar="FD")
    parser.add_argument("--config", type=int, required=True, metavar="FD")
    parser.add_argument("--provider-keys", type=int, metavar="FD")
    parser.add_argument("--master-key", type=int, metavar="FD")
    parser.add_argument("--next-master-key", type=int, metavar="FD")
    parser.add_argument("--data-dir", type=Path, required=True, metavar="DIR")
    return parser
