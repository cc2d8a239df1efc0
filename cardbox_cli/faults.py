"""Named points of a command at which a test can kill the process. Only tests set the two variables.

`CBX_TEST_FAULT=SIGKILL:commit:2` sends this process that signal when it reaches the point `commit` for the
second time; `CBX_TEST_FAULT_LOG=FILE` appends each point that it reaches, as `commit:2`. Knows nothing about
what happens between two points. Without the variables a point costs one cache lookup.
"""

import os
import re
import signal
from collections import Counter
from functools import cache
from typing import NamedTuple

from cardbox_cli.errors import UsageError
from cardbox_cli.settings import TEST_FAULT, TEST_FAULT_LOG

_FAULT = r"(?P<sign>\w+):(?P<at>[^:]+:[1-9]\d*)"


def fault_point(point: str) -> None:
    """Mark that this process has reached `point`, and execute the orders of a test for it."""
    orders = _orders()
    if orders is not None:
        orders.carry_out(point)


class _Orders(NamedTuple):
    """Orders of a test: send `sign` at the point `at`, such as "commit:2", and append each point to `log`."""

    sign: signal.Signals | None
    at: str | None
    log: str | None
    times: Counter[str]

    def carry_out(self, point: str) -> None:
        self.times[point] += 1
        place = f"{point}:{self.times[point]}"
        if self.log is not None:
            with open(self.log, "a", encoding="utf-8") as file:
                file.write(place + "\n")
        if self.sign is not None and place == self.at:
            os.kill(os.getpid(), self.sign)


@cache
def _orders() -> _Orders | None:
    fault, log = TEST_FAULT.text() or None, TEST_FAULT_LOG.text() or None
    if fault is None and log is None:
        return None
    sign, at = (None, None) if fault is None else _parse(fault)
    return _Orders(sign, at, log, Counter())


def _parse(fault: str) -> tuple[signal.Signals, str]:
    match = re.fullmatch(_FAULT, fault)
    if match is None or match["sign"] not in signal.Signals.__members__:
        raise UsageError(
            f"{TEST_FAULT.name} is {fault!r}; it must be SIGNAL:POINT:COUNT, for example 'SIGKILL:commit:1'",
            hint=f"run `unset {TEST_FAULT.name}`: it is for the tests of cbx",
        )
    return signal.Signals[match["sign"]], match["at"]
