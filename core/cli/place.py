"""Where the server that a command is about lies: its configuration and data directory."""

import argparse
from pathlib import Path

import msgspec

from core.cli.failure import CommandFailed
from core.config import Config, default_config_path, load_config


def configured(arguments: argparse.Namespace) -> Config:
    """The configuration with the overrides of the command line. Raises ConfigError."""
    config = load_config(Path(arguments.config) if arguments.config else None)
    if not arguments.data_dir:
        return config
    data_dir = str(Path(arguments.data_dir).absolute())
    return msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, data_dir=data_dir))


def used_config_path(arguments: argparse.Namespace) -> Path | None:
    """The configuration file that is read, absolute; None where there is none."""
    path = Path(arguments.config).absolute() if arguments.config else default_config_path()
    return path if path.exists() else None


def config_file(arguments: argparse.Namespace) -> tuple[Path, str]:
    """Where the configuration lies, and its text; empty where there is none yet. Raises CommandFailed."""
    path = Path(arguments.config) if arguments.config else default_config_path()
    try:
        return path, path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return path, ""
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{path}: cannot be read: {error}") from None


def hub_url(config: Config) -> str:
    """Where clients on this machine reach the configured hub, without a path."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.hub.host, config.hub.host)  # noqa: S104
    scheme = "https" if config.hub.tls_key else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{config.hub.port}"
