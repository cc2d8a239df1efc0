"""`python -m benchmarks.scale`: commands on 1,000,000 cards beside the same on 10,000, those of chats on one
of 100,000 entries beside one of 1,000, lists on 1,000,000 turns that have ended beside 10,000.

Both databases lie on one throw-away server. Whole commands run in this process, each database on a
connection that is kept, in turn: the start of a process, equal on both sides, would hide what differs.
Each round asks for another box. Prints medians and their ratio; exit code 8 when a target is missed.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.scale import card_commands, chats, turns
from benchmarks.scale.measuring import Measured
from benchmarks.scale.sides import Sides, sides
from benchmarks.scale.telling import tell

SMALL = 10_000
MISSED = 8


def compare(large: int, parts: list[str]) -> Iterator[Measured]:
    """Each measurement as it comes, on two fresh databases."""
    with tempfile.TemporaryDirectory(prefix="cbx-scale-") as folder:
        os.environ["CBX_HOME"] = str(Path(folder, "cbx"))
        with sides(SMALL, large) as both:
            for part in parts:
                yield from PARTS[part](both, Path(folder))


PARTS: dict[str, Callable[[Sides, Path], Iterator[Measured]]] = {
    "cards": card_commands.measure_all,
    "chats": chats.measure_all,
    "turns": turns.measure_all,
}


def _show_row(measured: Measured) -> None:
    times = f"{measured.small_ms:>9.1f} {measured.large_ms:>12.1f}"
    target = "" if measured.target is None else f"  {measured.target} ×{' missed' if measured.missed else ''}"
    print(f"{measured.name:<31} {times} {measured.ratio:>8.2f} ×{target}", flush=True)


def main() -> int:
    """Measure and print; 8 when a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all without one")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--cards", type=int, default=1_000_000, metavar="N", help="cards of the large database"
    )
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"no part {min(unknown)!r}: there are {', '.join(PARTS)}")
    if not asked.json:
        print(f"{'median ms':<31} {SMALL:>9,} {asked.cards:>12,}      ratio  target")
    found = []
    for measured in compare(asked.cards, asked.parts or list(PARTS)):
        found.append(measured)
        if not asked.json:
            _show_row(measured)
    missed = [measured.name for measured in found if measured.missed]
    if asked.json:
        answer = {"small": SMALL, "large": asked.cards, "commands": [each.as_json() for each in found]}
        print(json.dumps(answer, indent=2))
    if missed:
        tell(f"missed: {', '.join(missed)}")
    return MISSED if missed else 0


if __name__ == "__main__":
    sys.exit(main())
