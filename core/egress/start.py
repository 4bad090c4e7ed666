"""Started as a file by ``python -I``, which has neither the working directory nor PYTHONPATH."""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

    from core.egress.main import main

    status = main()
    sys.stderr.flush()
    # Not sys.exit: it would wait for a thread that hangs in a look-up of a name.
    os._exit(status)
