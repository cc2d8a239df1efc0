"""What `cbx worker run` prints while it runs: lines for people on stderr, outcomes of runs on stdout."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Any

from cardbox_cli.cli.common_options import FORMATS
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output

if TYPE_CHECKING:
    from cardbox_cli.execution.worker.runs.runner import Outcome


class Journal:
    """What happens, a line each on stderr; outcomes of runs on stdout, where data is asked for.

    What cannot be written is no failure of a turn: `leave` is called once, and `close` raises it.
    """

    def __init__(self, format_: str) -> None:
        self.leave: Callable[[], None] | None = None
        self._format = format_
        self._lock = Lock()
        self._rests: list[dict[str, Any]] = []
        self._unwritten: OSError | None = None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except OSError as exc:
            self._unwritten = self._unwritten or exc
            leave, self.leave = self.leave, None
            if leave is not None:
                leave()

    def line(self, text: str) -> None:
        with self._writing():
            announce(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {text}")

    def ended(self, project_id: str, outcome: "Outcome") -> None:
        deliverable = f", deliverable {outcome.end.deliverable_card_id}" if outcome.end else ""
        code = f" ({outcome.error_code})" if outcome.error_code else ""
        end = f" {outcome.end.end_status}" if outcome.end else ""
        message = "" if outcome.message == end.strip() else f": {outcome.message}"
        kind = outcome.kind.replace("_", " ")
        self.line(
            f"turn {outcome.agent_turn_id} of {outcome.agent_id}: {kind}{end}{code}{message}{deliverable}"
        )
        if outcome.kind in ("ended", "suspended"):
            with self._writing():
                self._keep(_shown(project_id, outcome))

    def _keep(self, shown: dict[str, Any]) -> None:
        if self._format == "jsonl":
            from cardbox_cli.model import exact_json

            output.write(exact_json.encode(shown).decode())
        elif self._format == "id":
            output.write(shown["agent_turn_id"])
        else:
            self._rests.append(shown)
        sys.stdout.flush()

    def close(self) -> None:
        """Print what is left for the end. Raises what made writing fail."""
        if self._unwritten is not None:
            raise self._unwritten
        if FORMATS[self._format].kind != "lines":
            output.emit(self._rests, table=lambda: None)


def _shown(project_id: str, outcome: "Outcome") -> dict[str, Any]:
    return {
        "project_id": project_id,
        "agent_turn_id": outcome.agent_turn_id,
        "agent_id": outcome.agent_id,
        "status": outcome.kind,
        "end_status": outcome.end.end_status if outcome.end else None,
        "error_code": outcome.error_code,
        "message": outcome.message if outcome.error_code else None,
        "deliverable_card_id": outcome.end.deliverable_card_id if outcome.end else None,
        "waiting_tool_call_ids": outcome.waiting,
        "steps": outcome.steps,
    }
