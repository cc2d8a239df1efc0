"""Requests of many at once to a server on two cores, beside the same cards read there without it."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.measure import Missing, Row, Side
from benchmarks.reading import served, stored
from benchmarks.workbench import PROJECT, Workbench, peer

_SECONDS = 3
_ASKERS = 16
_CORES = 2
_COUNT = re.compile(r"(\d+) requests in ([\d.]+)s")
_FAILED = re.compile(r"Non-2xx|Socket errors")
_POST = """wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = {body}
"""


@contextmanager
def _prepare(bench: Workbench, *, size: int) -> Iterator[tuple[Side, Side]]:
    program = shutil.which("wrk")
    if program is None:
        raise Missing("wrk is not installed (Debian's package wrk)")
    with bench.database() as database:
        cards = stored(database)
        ids = [card.card_id for card in cards[:: len(cards) // size]][:size]
        cores = sorted(os.sched_getaffinity(0))[:_CORES]
        with served(bench, database, cores=cores) as address, tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "ask.lua"
            script.write_text(_POST.format(body=json.dumps(json.dumps({"card_ids": ids}))))
            asking = [program, "-t1", f"-c{_ASKERS}", f"-d{_SECONDS}s", "-s", str(script)]
            reading = peer("read_cards", database.target.conninfo or "", str(_SECONDS), *ids)
            yield (
                Side(run=partial(_asked, [*asking, f"{address}/projects/{PROJECT}/cards/batch"]), tells=True),
                Side(run=partial(_read, reading, cores), tells=True),
            )


def _asked(command: Sequence[str]) -> float:
    """Seconds of a request, as wrk counts them."""
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    count = _COUNT.search(told)
    if count is None or _FAILED.search(told):
        raise RuntimeError(told)
    return float(count[2]) / int(count[1])


def _read(command: Sequence[str], cores: Sequence[int]) -> float:
    """Seconds of reading all cards one by one, by a process on each core."""
    begin = partial(subprocess.Popen, command, stdout=subprocess.PIPE, text=True)
    processes = [begin(preexec_fn=partial(os.sched_setaffinity, 0, cores)) for _ in cores]
    return _SECONDS / sum(int(process.communicate()[0]) for process in processes)


def _row(name: str, size: int, what: str, against: str) -> Row:
    prepare = partial(_prepare, size=size)
    return Row(name=name, what=what, against=against, target=None, rounds=5, prepare=prepare)


ROWS = [
    _row(
        "read-rate-100",
        100,
        f"100 cards by POST, {_ASKERS} askers of wrk, the server on {_CORES} cores",
        f"each card by a SELECT of its own, as the card-box library reads them, by {_CORES} processes",
    ),
    _row(
        "read-rate-1",
        1,
        f"1 card by POST, {_ASKERS} askers of wrk, the server on {_CORES} cores",
        f"a SELECT, by {_CORES} processes",
    ),
]
