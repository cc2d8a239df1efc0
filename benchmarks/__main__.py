"""`python -m benchmarks`: run the rows, and report each beside its target.

Exits with 0 when every target is met, with 8 when one is missed, and with 130 on Ctrl-C.
"""

import signal
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

import msgspec

from benchmarks import (
    append,
    claim,
    clients,
    commands,
    cost,
    delegate,
    fork_join,
    formats,
    growth,
    ingest,
    load,
    pack,
    reading,
    reading_rate,
    render,
    startup,
    tokens,
)
from benchmarks.machine import Machine, describe_machine
from benchmarks.measure import Measured, Missing, Row, Target, measure
from benchmarks.workbench import Workbench

ROWS = [
    row
    for family in (
        *(startup, commands, ingest, append, load, pack, render, formats, cost, tokens),
        *(reading, reading_rate, claim, clients, delegate, fork_join, growth),
    )
    for row in family.ROWS
]

DONE, MISSED, INTERRUPTED, TERMINATED = 0, 8, 130, 143

_LINE = "{:<22} {:>9} {:>9} {:>8}   {:<9} {:<7} {}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what `arguments` (default: the command line's) ask for; the exit code."""
    options = _parse(arguments)
    rows = [row for row in ROWS if not options.row or row.name in options.row]
    if options.list:
        _list(rows)
        return DONE
    try:
        return run(rows, rounds=options.rounds, as_json=options.json)
    except KeyboardInterrupt:
        return INTERRUPTED


def run(rows: Iterable[Row], *, rounds: int | None = None, as_json: bool = False) -> int:
    """Measure `rows`, each in so many rounds instead of its own, and report on stdout; the exit code."""
    with Workbench.open() as bench:
        machine = describe_machine(bench.server_version)
        if not as_json:
            _say_machine(machine)
        found = []
        for row in rows:
            try:
                found.append(measure(row, bench, rounds=rounds))
            except Missing as exc:
                print(f"{row.name} was not measured: {exc}", file=sys.stderr)
                continue
            if not as_json:
                _say(found[-1])
    if as_json:
        answer = {"machine": machine, "rows": [_as_json(measured) for measured in found]}
        print(msgspec.json.format(msgspec.json.encode(answer)).decode())
    missed = [measured.row.name for measured in found if not measured.met]
    if missed:
        print(f"{len(missed)} of {len(found)} targets missed: {', '.join(missed)}", file=sys.stderr)
    return MISSED if missed else DONE


def _parse(arguments: Sequence[str] | None) -> Namespace:
    parser = ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").strip().split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print everything, each run too, as JSON")
    parser.add_argument("--list", action="store_true", help="print what is measured, and measure nothing")
    parser.add_argument("--rounds", type=_rounds, metavar="N", help="so many rounds of every row")
    parser.add_argument(
        "--row",
        nargs="+",
        metavar="NAME",
        choices=[row.name for row in ROWS],
        help="only these rows; --list shows their names",
    )
    return parser.parse_args(arguments)


def _rounds(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def _list(rows: Iterable[Row]) -> None:
    for row in rows:
        print(f"{row.name:<22} {_target(row.target):<9} {row.what} : {row.against}")


def _say_machine(machine: Machine) -> None:
    packages = ", ".join(f"{name} {number}" for name, number in machine.packages.items())
    print(f"cpu       {machine.cpu}, {machine.cores} cores, {machine.memory / 2**30:.1f} GiB")
    print(f"system    {machine.system}")
    print(f"versions  {machine.python}, PostgreSQL {machine.postgres}, {packages}")
    print("load      " + " ".join(f"{load:.2f}" for load in machine.load))
    print()
    print(_LINE.format("ROW", "CBX", "PEER", "RATIO", "TARGET", "", "CBX : PEER"), flush=True)


def _say(measured: Measured) -> None:
    row = measured.row
    print(
        _LINE.format(
            row.name,
            _amount(median(measured.ours), row.unit),
            _amount(median(measured.peer), row.unit),
            f"{measured.ratio:.2f} ×",
            _target(row.target),
            "" if measured.met else "MISSED",
            f"{row.what} : {row.against}",
        ).rstrip(),
        flush=True,
    )


def _target(target: Target | None) -> str:
    if target is None:
        return "-"
    return f"{'≤' if target.kind == 'at most' else '≥'} {target.limit:g} ×"


def _amount(number: float, unit: str) -> str:
    return _time(number) if unit == "s" else f"{number:.1f} {unit}"


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} µs"


def _as_json(measured: Measured) -> dict[str, Any]:
    """Times in seconds, per unit where the row compares unequal amounts; memory in MB, of a million bytes."""
    row = measured.row
    return {
        "name": row.name,
        "what": row.what,
        "against": row.against,
        "unit": row.unit,
        "target": row.target,
        "ratio": measured.ratio,
        "met": measured.met,
        "cbx": {"median": median(measured.ours), "samples": measured.ours},
        "peer": {"median": median(measured.peer), "samples": measured.peer},
    }


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    sys.exit(main())
