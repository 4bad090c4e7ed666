"""``scripts/bench NAME ...``: runs benchmarks and prints their results as JSON lines.

A benchmark is a module ``scripts/benches/NAME.py`` (a - in the name is a _ in the file) with a
function ``measure() -> Iterator[Result]``.
"""

import argparse
import importlib
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.benches.result import Result

_NOT_BENCHES = {"dispatch", "result"}


def names() -> list[str]:
    """The benchmarks there are."""
    found = (path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
    return sorted(stem.replace("_", "-") for stem in found if stem not in _NOT_BENCHES)


def main(argv: list[str]) -> int:
    """Run the benchmarks named; exit code 2 for a name that there is not."""
    known = names()
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description=f"Benchmarks: {', '.join(known) or 'none yet'}."
    )
    parser.add_argument("name", nargs="+", metavar="NAME")
    chosen: list[str] = parser.parse_args(argv).name
    for name in chosen:
        if name not in known:
            parser.error(f"no benchmark {name}; there are: {', '.join(known) or 'none yet'}")
    # ended early, what was started still has to be ended and directories removed
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    for name in chosen:
        for result in _measure(name):
            print(line(result), flush=True)
    return 0


def line(result: Result) -> str:
    """A result as one line of JSON."""
    return json.dumps(
        {
            "bench": result.bench,
            **result.varied,
            "median": _rounded(result.median),
            "p99": _rounded(result.p99),
            "unit": result.unit,
            "floor": _rounded(result.floor),
            "ratio": _rounded(result.ratio),
        }
    )


def _measure(name: str) -> Iterator[Result]:
    module = importlib.import_module(f"scripts.benches.{name.replace('-', '_')}")
    results: Iterator[Result] = module.measure()
    return results


def _rounded(value: float) -> float:
    """Four significant digits: more than any of these figures deserves."""
    return float(f"{value:.4g}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
