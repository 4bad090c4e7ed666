"""``certosa serve``."""

import argparse
from pathlib import Path

from core.cli.place import configured
from core.config import default_config_path


def serve(arguments: argparse.Namespace) -> int:
    """Start the server; returns when it has ended, with its exit code."""
    config = configured(arguments)
    from core.serve import serve as run

    path = Path(arguments.config).absolute() if arguments.config else default_config_path()
    return run(config, path if path.exists() else None)
