"""What is kept, and told, of the stderr of a turn's commands: its end, without what looks like a secret."""

from collections.abc import Callable
from datetime import timedelta

import msgspec

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import ToolCall
from cardbox_cli.execution.worker.answers.failures import TAIL
from cardbox_cli.execution.worker.commands.command import Ran
from cardbox_cli.execution.worker.redaction import LONGEST, redacted
from cardbox_cli.model import exact_json
from cardbox_cli.model.execution.logs import CommandLog
from cardbox_cli.model.execution.turns import Fence
from cardbox_cli.store.execution.logs import LogStore


def bytes_to_read(kept: int) -> int:
    """How much of stderr is wanted to keep so many bytes of it, and a tail."""
    return max(kept, TAIL * 4) + LONGEST


def without_secrets(ran: Ran) -> Ran:
    """The same with a stderr that can be stored, and shown to people."""
    if not ran.stderr:
        return ran
    text = exact_json.storable_text(redacted(ran.stderr, cut=ran.stderr_is_cut))
    return msgspec.structs.replace(ran, stderr=text)


def keep_log(
    runtime: Runtime,
    hold: Callable[[], object],
    *,
    fence: Fence,
    ran: Ran,
    log_id: str,
    step_id: str,
    call: ToolCall | None,
    worker_id: str,
    kept: int,
) -> None:
    """Keep the last `kept` bytes of a command's stderr, if it wrote any or failed.

    `hold` holds what `fence` is of, or raises StaleEpoch.
    """
    store = LogStore(runtime.database, runtime.project_id)
    if not kept or not (ran.stderr_bytes or not ran.succeeded) or not store.writable:
        return
    with runtime.transaction():
        hold()
        ended_at = runtime.database.now()
        store.add(
            CommandLog(
                log_id=log_id,
                agent_turn_id=fence.agent_turn_id,
                step_id=step_id,
                tool_call_id=call.tool_call_id if call else None,
                tool_name=call.tool_name if call else None,
                turn_epoch=fence.turn_epoch,
                worker_id=worker_id,
                exit_code=ran.exit_code if ran.came_to_its_end else None,
                stderr=_last_bytes(ran.stderr, kept),
                stderr_bytes=ran.stderr_bytes,
                started_at=ended_at - timedelta(seconds=ran.duration),
                ended_at=ended_at,
            )
        )


def _last_bytes(text: str, count: int) -> str:
    return text.encode()[-count:].decode(errors="ignore")
