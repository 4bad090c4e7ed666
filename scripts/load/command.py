"""``scripts/loadtest``."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.cli.failure import CommandFailed
from core.cli.output import print_table
from scripts.load import compare, report, trial
from scripts.load.knee import search
from scripts.load.plan import names, scenario
from scripts.load.results import figures

_MET, _MISSED, _FAILED, _USAGE = 0, 1, 3, 2


def main(argv: list[str]) -> int:
    """Exit status 0: every objective met; 1: one missed; 2: asked wrongly; 3: the test could not be done."""
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.act(arguments)
        return status
    except (trial.TrialFailed, CommandFailed) as error:
        print(f"scripts/loadtest: {error}", file=sys.stderr)
        return _FAILED
    except (compare.CannotCompare, ValueError) as error:
        print(f"scripts/loadtest: {error}", file=sys.stderr)
        return _USAGE


def _run(arguments: argparse.Namespace) -> int:
    chosen = scenario(arguments.name, arguments.users, arguments.streams)
    if arguments.settle is not None:
        chosen = replace(chosen, settle_s=arguments.settle)
    chosen = replace(chosen, config=chosen.config + _config(arguments))
    if chosen.settle_s >= arguments.seconds:
        raise ValueError(f"--seconds has to be more than the {chosen.settle_s:g} s until all has settled")
    result = trial.run(chosen, arguments.seconds, arguments.seed, _say)
    page = report.write(result, arguments.out)
    _conclude(result)
    print(f"report: {page}")
    return _MET if _well(result) else _MISSED


def _knee(arguments: argparse.Namespace) -> int:
    config = _config(arguments)

    def attempt(streams: int) -> tuple[bool, dict[str, Any]]:
        _say(f"== {streams} streams")
        chosen = replace(scenario("streaming", streams), config=config)
        result = trial.run(chosen, arguments.seconds, arguments.seed, _say)
        return _well(result), result

    found = search(arguments.low, arguments.high, attempt)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for streams, result in found.tried:
        report.write(result, arguments.out / f"streams-{streams}")
    print_table(
        ("STREAMS", "OBJECTIVES", "ADDED P50", "ADDED P99", "CPU CORE", "CPU EGRESS"),
        [
            (
                str(streams),
                "met" if _well(result) else "missed",
                *(report.shown(result["figures"][name]) for name in _KNEE_FIGURES),
            )
            for streams, result in sorted(found.tried, key=lambda pair: pair[0])
        ],
    )
    print(f"knee: {found.streams} streams hold the objectives" if found.streams else "knee: none holds them")
    return _MET if found.streams else _MISSED


_KNEE_FIGURES = ("delta_added_p50_ms", "delta_added_p99_ms", "cpu_core", "cpu_egress")


def _report(arguments: argparse.Namespace) -> int:
    result = compare.load(arguments.directory)
    result["figures"] = figures(result)
    print(f"report: {report.write(result, arguments.directory)}")
    return _MET


def _compare(arguments: argparse.Namespace) -> int:
    rows = compare.table(compare.load(arguments.a), compare.load(arguments.b))
    print_table(("FIGURE", "A", "B", "B/A"), rows)
    return _MET


def _config(arguments: argparse.Namespace) -> str:
    if arguments.config is None:
        return ""
    try:
        return "\n" + str(arguments.config.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{arguments.config} cannot be read: {error}") from None


def _conclude(result: dict[str, Any]) -> None:
    rows = [
        (
            found["figure"],
            report.shown(found["found"]),
            ("at least " if found["least"] else "at most ") + report.shown(found["limit"]),
            found["unit"],
            "met" if found["met"] else "MISSED",
        )
        for found in result["objectives"]
    ]
    print_table(("FIGURE", "FOUND", "LIMIT", "UNIT", ""), rows)
    for text in result["exceptions"]:
        print(f"the test's own people failed: {text}")


def _well(result: dict[str, Any]) -> bool:
    return not result["exceptions"] and all(found["met"] for found in result["objectives"])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/loadtest", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    known = "\n".join(f"  {name:14} {about}" for name, about in names().items())
    run = commands.add_parser(
        "run", help="do a load test and write its report", epilog=f"scenarios:\n{known}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    run.add_argument("name", choices=tuple(names()), metavar="SCENARIO")
    run.add_argument("--users", type=int, help="how many people (default: the scenario's)")
    run.add_argument("--streams", type=int, help="how many of them stream without a pause (mixed, abuse)")
    run.add_argument("--settle", type=float, help="seconds until it is judged (default: the scenario's)")
    _common(run)
    run.set_defaults(act=_run)
    knee = commands.add_parser("knee", help="find the highest number of streams that holds the objectives")
    knee.add_argument("--low", type=int, default=10, help="streams that are expected to hold (default 10)")
    knee.add_argument("--high", type=int, default=400, help="and not to (default 400)")
    _common(knee)
    knee.set_defaults(act=_knee)
    again = commands.add_parser("report", help="write the report of a test's results anew")
    again.add_argument("directory", type=Path, metavar="DIRECTORY")
    again.set_defaults(act=_report)
    two = commands.add_parser("compare", help="two tests' figures beside each other")
    two.add_argument("a", type=Path, metavar="A", help="a report's directory, or its results.json")
    two.add_argument("b", type=Path, metavar="B")
    two.set_defaults(act=_compare)
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default 60)")
    parser.add_argument("--seed", type=int, default=1, help="of what people do by chance (default 1)")
    parser.add_argument("--config", type=Path, help="TOML, further sections of the server's configuration")
    parser.add_argument("--out", type=Path, default=Path("loadtest"), help="directory (default loadtest)")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
