"""`python -m benchmarks`: run the rows, and report each beside its target, or beside another commit.

Exits with 0 when every target is met, with 8 when one is missed, and with 130 on Ctrl-C. A comparison with
another commit has no targets, and exits with 0.
"""

import signal
import subprocess
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from benchmarks import (
    append,
    claim,
    clients,
    commands,
    cost,
    fork_join,
    formats,
    growth,
    ingest,
    load,
    reading,
    render,
    report,
    startup,
)
from benchmarks.against import Compared, UnknownCommit, compare
from benchmarks.machine import describe_machine
from benchmarks.measure import ROOT, Missing, Row, measure
from benchmarks.workbench import Workbench

ROWS = [
    row
    for family in (
        *(startup, commands, ingest, append, load, render, formats, cost),
        *(reading, claim, clients, fork_join, growth),
    )
    for row in family.ROWS
]
RESULTS = Path(__file__).parent / "RESULTS.md"

DONE, MISSED, INTERRUPTED, TERMINATED = 0, 8, 130, 143


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what `arguments` (default: the command line's) ask for; the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return _run(parser, options)
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(parser: ArgumentParser, options: Namespace) -> int:
    rows = _chosen(parser, options.rows)
    if options.write_results and options.rows:
        parser.error("argument --write-results: the page has all rows, so it cannot be combined with ROW")
    if options.list:
        print("\n".join(map(report.listed, rows)))
        return DONE
    if options.against:
        try:
            return run_against(rows, options.against, rounds=options.rounds, as_json=options.json)
        except UnknownCommit as exc:
            parser.error(f"argument --against: {exc}")
    return run(
        rows, rounds=options.rounds, as_json=options.json, page=RESULTS if options.write_results else None
    )


def run(
    rows: Iterable[Row], *, rounds: int | None = None, as_json: bool = False, page: Path | None = None
) -> int:
    """Measure `rows`, each in so many rounds instead of its own; the exit code.

    Reports on stdout, and in the file `page`.
    """
    begun = monotonic()
    with Workbench.open() as bench:
        machine = describe_machine(bench.server_version)
        if not as_json:
            print("\n".join([*report.machine_lines(machine), "", report.heading()]), flush=True)
        found = []
        for row in rows:
            try:
                found.append(measure(row, bench, rounds=rounds))
            except Missing as exc:
                print(f"{row.name} was not measured: {exc}", file=sys.stderr)
                continue
            if not as_json:
                print(report.measured_lines(found[-1]), flush=True)
    if as_json:
        _print_json({"machine": machine, "rows": list(map(report.measured_json, found))})
    else:
        print(f"\n{len(found)} rows in {(monotonic() - begun) / 60:.1f} minutes")
    if page is not None:
        date = f"{datetime.now(UTC):%Y-%m-%d}"
        page.write_text(report.results_page(found, machine, date=date, commit=_commit()), encoding="utf-8")
    missed = [measured.row.name for measured in found if not measured.met]
    if missed:
        print(f"{len(missed)} of {len(found)} targets missed: {', '.join(missed)}", file=sys.stderr)
    return MISSED if missed else DONE


def run_against(rows: Iterable[Row], commit: str, *, rounds: int | None = None, as_json: bool = False) -> int:
    """Compare `rows` with `commit`, and report on stdout; the exit code. Raises UnknownCommit."""
    found: list[Compared] = []
    for compared in compare(rows, commit, rounds=rounds):
        if not as_json:
            if not found:
                print(report.against_heading())
            print(report.against_line(compared), flush=True)
        found.append(compared)
    if as_json:
        _print_json({"commit": commit, "rows": list(map(report.compared_json, found))})
    return DONE


def _print_json(answer: Any) -> None:
    print(msgspec.json.format(msgspec.json.encode(answer)).decode())


def _commit() -> str:
    """This commit, and whether files differ from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty= with changes"], cwd=ROOT, capture_output=True, text=True
    )
    return described.stdout.strip() or "unknown"


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").strip().split("\n")[0])
    parser.add_argument(
        "rows",
        nargs="*",
        metavar="ROW",
        help="only these rows, also as 'startup-*'; --list shows their names",
    )
    parser.add_argument("--json", action="store_true", help="print everything, each run too, as JSON")
    parser.add_argument("--rounds", type=_rounds, metavar="N", help="so many rounds of every row")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--list", action="store_true", help="print the rows, and measure nothing")
    instead.add_argument(
        "--against", metavar="COMMIT", help="compare with another commit instead of the peers"
    )
    instead.add_argument("--write-results", action="store_true", help=f"write benchmarks/{RESULTS.name}, too")
    return parser


def _rounds(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def _chosen(parser: ArgumentParser, patterns: Sequence[str]) -> list[Row]:
    """The rows that the patterns name, or all, in their usual order."""
    for pattern in patterns:
        if not any(fnmatchcase(row.name, pattern) for row in ROWS):
            parser.error(f"no row is named {pattern!r}; --list shows their names")
    return [
        row for row in ROWS if not patterns or any(fnmatchcase(row.name, pattern) for pattern in patterns)
    ]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    sys.exit(main())
