"""``certosa serve``."""

import argparse

from core.cli.place import configured, used_config_path


def serve(arguments: argparse.Namespace) -> int:
    """Start the server; returns when it has ended, with its exit code."""
    config = configured(arguments)
    from core.serve import serve as run

    return run(config, used_config_path(arguments))
