"""Texts of what was measured: lines for the terminal, JSON, and the page `RESULTS.md`."""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from benchmarks.against import Compared
from benchmarks.machine import Machine
from benchmarks.measure import Measured, Row, Target

_LINE = "{:<22} {:>9} {:>9} {:>8}   {:<9} {:<7} {}"
_AGAINST_LINE = "{:<22} {:>9} {:>9} {:>6} {:>6} {:>6}"
_INDENT = " " * 23

_PAGE = """\
# Results of `make bench`

`python -m benchmarks --write-results` writes this page. The page
[Performance](../docs/operate/performance.md) explains how to read it.

- {date}, commit {commit}
{machine}

| row | cbx | peer | ratio | target | | who feels it | cbx : peer |
|---|--:|--:|--:|---|---|---|---|
{rows}
"""


def machine_lines(machine: Machine) -> list[str]:
    """The machine, a line for each of its facts."""
    packages = ", ".join(f"{name} {number}" for name, number in machine.packages.items())
    return [
        f"cpu       {machine.cpu}, {machine.cores} cores, {machine.memory / 2**30:.1f} GiB",
        f"system    {machine.system}",
        f"versions  {machine.python}, PostgreSQL {machine.postgres}, {packages}",
        "load      " + " ".join(f"{load:.2f}" for load in machine.load),
    ]


def listed(row: Row) -> str:
    """A row that is not measured."""
    return f"{row.name:<22} {_target(row.target):<9} {row.what} : {row.against}\n{_felt(row)}"


def heading() -> str:
    """The line above measured rows."""
    return _LINE.format("ROW", "CBX", "PEER", "RATIO", "TARGET", "", "CBX : PEER")


def measured_lines(measured: Measured) -> str:
    """A measured row, and who feels it."""
    row = measured.row
    line = _LINE.format(*_cells(measured), f"{row.what} : {row.against}")
    return f"{line}\n{_felt(row)}"


def against_heading() -> str:
    """The line above rows that were compared with another commit."""
    return _AGAINST_LINE.format("ROW", "HERE", "THERE", "MIN", "MEDIAN", "MAX")


def against_line(compared: Compared) -> str:
    """A row that was compared with another commit."""
    row, ratios = compared.row, compared.ratios
    times = (_amount(median(each), row.unit) for each in (compared.here, compared.there))
    shown = (min(ratios), median(ratios), max(ratios))
    return _AGAINST_LINE.format(row.name, *times, *(f"{each:.2f}" for each in shown))


def results_page(measured: Iterable[Measured], machine: Machine, *, date: str, commit: str) -> str:
    """The page `RESULTS.md`, in Markdown."""
    facts = "\n".join(f"- {line}" for line in machine_lines(machine))
    rows = "\n".join(
        "| " + " | ".join([*_cells(each), each.row.felt_by, f"{each.row.what} : {each.row.against}"]) + " |"
        for each in measured
    )
    return _PAGE.format(date=date, commit=commit, machine=facts, rows=rows)


def measured_json(measured: Measured) -> dict[str, Any]:
    """Times in seconds, per unit where the row compares unequal amounts; memory in MB, of a million bytes."""
    row = measured.row
    return {
        "name": row.name,
        "what": row.what,
        "against": row.against,
        "felt_by": row.felt_by,
        "unit": row.unit,
        "target": row.target,
        "ratio": measured.ratio,
        "met": measured.met,
        "cbx": _samples(measured.ours),
        "peer": _samples(measured.peer),
    }


def compared_json(compared: Compared) -> dict[str, Any]:
    """Times as in `measured_json`; the ratio is here divided by there."""
    ratios = compared.ratios
    return {
        "name": compared.row.name,
        "unit": compared.row.unit,
        "ratio": {"min": min(ratios), "median": median(ratios), "max": max(ratios)},
        "here": _samples(compared.here),
        "there": _samples(compared.there),
    }


def _samples(samples: Sequence[float]) -> dict[str, Any]:
    return {"median": median(samples), "samples": samples}


def _felt(row: Row) -> str:
    return f"{_INDENT}felt by {row.felt_by}"


def _cells(measured: Measured) -> list[str]:
    row = measured.row
    return [
        row.name,
        _amount(median(measured.ours), row.unit),
        _amount(median(measured.peer), row.unit),
        f"{measured.ratio:.2f} ×",
        _target(row.target),
        "" if measured.met else "MISSED",
    ]


def _target(target: Target) -> str:
    return f"{'≤' if target.kind == 'at most' else '≥'} {target.limit:g} ×"


def _amount(number: float, unit: str) -> str:
    return _time(number) if unit == "s" else f"{number:.1f} {unit}"


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} µs"
