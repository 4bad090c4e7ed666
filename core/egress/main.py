"""The egress process: the only one with keys, and the only one that connects to the outside.

    python -I APP/core/egress/start.py --core FD --config FD --data-dir DIR
                                       [--spawner FD] [--provider-keys FD]
                                       [--master-key FD [--next-master-key FD]]

``--core`` is our end of the stream pair to core, ``--spawner`` of the pair on which it hands over what is
new at SIGHUP, ``--config`` the whole configuration as JSON
(msgspec's encoding of core.config.Config), ``--provider-keys`` the open key file, ``--master-key`` the
open master key where it is kept elsewhere than in the data directory. Exit status: 0
at core's end or SIGTERM, 1 where the link or the vault broke, 2 for wrong arguments, 78 (EX_CONFIG)
where key file, master key or vault are not as they have to be: starting again changes nothing then.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog

from core.config import Config
from core.egress.accounts import OpenAccounts, open_accounts
from core.egress.first_token import show_first_token
from core.egress.keyfile import read_provider_keys
from core.egress.process import harden, read_config
from core.egress.secret import Secret
from core.egress.server import Egress
from core.egress.spawner_end import SpawnerEnd
from core.errors import ConfigError
from core.log import configure_logging
from core.state_dump import StateDump
from core.vault.errors import VaultError
from core.vault.key_source import HandedKeys
from core.vault.vault import Vault

EXIT_OK, EXIT_BROKEN, EXIT_CONFIG = 0, 1, 78
_RESOLVER_THREADS = 32
_log = structlog.get_logger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run until core is gone; returns the exit status. The caller then ends the process: threads
    that look up names may linger.
    """
    arguments = _parser().parse_args(argv)
    os.umask(0o077)
    harden()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until there is something to dump
    configure_logging("info", "auto", "egress")
    core = socket.socket(fileno=arguments.core)
    core.setblocking(False)
    try:
        config = read_config(arguments.config)
        configure_logging(config.server.log_level, config.server.log_format, "egress")
        keys: dict[str, Secret] = {}
        if arguments.provider_keys is not None:
            keys = read_provider_keys(arguments.provider_keys, config.providers)
        vault = Vault(arguments.data_dir / "_keys", source=_key_source(arguments))
        accounts = _open_accounts(arguments.data_dir / "_keys", config, vault)
        show_first_token(vault, arguments.data_dir / "_keys", config.server.log_format)
    except (ConfigError, VaultError) as error:
        _log.error("egress_start_failed", reason=str(error))
        return EXIT_CONFIG
    loop = asyncio.new_event_loop()
    # a name that does not resolve holds a thread for as long as the system's resolver likes
    loop.set_default_executor(ThreadPoolExecutor(_RESOLVER_THREADS, "resolver"))
    spawner = socket.socket(fileno=arguments.spawner) if arguments.spawner is not None else None
    dump = arguments.data_dir / "_keys" / "dump-egress.txt"
    return loop.run_until_complete(_run(config, vault, accounts, keys, core, spawner, dump))


def _open_accounts(keys_dir: Path, config: Config, vault: Vault) -> OpenAccounts:
    try:
        return open_accounts(keys_dir, config, *vault.audit_key())
    except BaseException:
        vault.close()
        raise


async def _run(
    config: Config,
    vault: Vault,
    accounts: OpenAccounts,
    keys: dict[str, Secret],
    core: socket.socket,
    spawner: socket.socket | None,
    dump: Path,
) -> int:
    egress = Egress(config, vault, accounts, keys)
    with contextlib.ExitStack() as held:
        held.callback(StateDump(dump, egress.state).close)
        if spawner is not None:
            held.callback(SpawnerEnd(spawner, egress.reload, egress.mounting.answer).close)
        error = await egress.serve(core)
    if error is not None:
        _log.error("egress_ended", reason=str(error))
        return EXIT_BROKEN
    _log.info("egress_ended")
    return EXIT_OK


def _key_source(arguments: argparse.Namespace) -> HandedKeys | None:
    if arguments.master_key is None:
        return None
    return HandedKeys(arguments.master_key, arguments.next_master_key)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="egress", description=__doc__, allow_abbrev=False)
    parser.add_argument("--core", type=int, required=True, metavar="FD")
    parser.add_argument("--config", type=int, required=True, metavar="FD")
    parser.add_argument("--spawner", type=int, metavar="FD")
    parser.add_argument("--provider-keys", type=int, metavar="FD")
    parser.add_argument("--master-key", type=int, metavar="FD")
    parser.add_argument("--next-master-key", type=int, metavar="FD")
    parser.add_argument("--data-dir", type=Path, required=True, metavar="DIR")
    return parser
