"""Started as a file by ``python -I``, which has neither the working directory nor PYTHONPATH."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

    from core.app import main

    sys.exit(main())
