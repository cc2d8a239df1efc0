"""The runs of chats and their steps. Methods take part in the transaction of a caller who holds the head."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from cardbox_cli.errors import NotFound
from cardbox_cli.model.chats import ChatRun
from cardbox_cli.model.execution.turns import COMPLETED, Step
from cardbox_cli.store.connection.database import jsonb
from cardbox_cli.store.connection.project_store import Dated, ProjectStore
from cardbox_cli.store.connection.short_ids import like_escape

_EVER = Dated()


class ChatRunStore(ProjectStore):
    """The runs of the chats of one project."""

    def begin(self, run: ChatRun) -> None:
        """Write the beginning of a run."""
        self._run("insert_chat_run", **_columns(run))

    def write(self, run: ChatRun) -> None:
        """A run as it is from now on."""
        self._run("write_chat_run", **_columns(run))

    def find(self, chat_key: str, run_id: str) -> ChatRun | None:
        """The run of this id."""
        return self._one(ChatRun, "chat_run", chat_key=chat_key, run_id=run_id)

    def get(self, chat_key: str, run_id: str) -> ChatRun:
        """The run of this id. Raises NotFound."""
        run = self.find(chat_key, run_id)
        if run is None:
            raise NotFound(
                f"chat {chat_key!r} names a run {run_id[:80]!r} that is not there",
                hint="another program has changed its rows; the next `cbx chat run` goes on without it",
            )
        return run

    def last(self, chat_key: str, limit: int | None, where: Dated = _EVER) -> list[ChatRun]:
        """The last runs of a chat that began then, the newest first; `limit` None means all."""
        dated = msgspec.structs.asdict(self._dated(where))
        return self._all(ChatRun, "last_chat_runs", chat_key=chat_key, limit=limit, **dated)

    def begin_step(
        self, run: ChatRun, step_id: str, *, request_box_id: str, metadata: dict[str, Any], now: datetime
    ) -> None:
        """Write the beginning of a step of a run, which has the run's boxes."""
        self._run(
            "insert_chat_step",
            chat_key=run.chat_key,
            run_id=run.run_id,
            step_id=step_id,
            status="llm_ready",
            profile_box_id=run.profile_box_id,
            context_box_id=run.context_box_id,
            output_box_id=run.output_box_id,
            request_box_id=request_box_id,
            metadata=jsonb(metadata),
            now=now,
        )

    def move_step(
        self,
        chat_key: str,
        step_id: str,
        status: str,
        *,
        now: datetime,
        tool_call_ids: Sequence[str] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Write the next state of a step; `completed` ends it."""
        self._run(
            "move_chat_step",
            chat_key=chat_key,
            step_id=step_id,
            status=status,
            tool_call_ids=None if tool_call_ids is None else jsonb(list(tool_call_ids)),
            metadata=jsonb(metadata or {}),
            ended_at=now if status == COMPLETED else None,
        )

    def close_steps(self, run: ChatRun, status: str, error: str | None, now: datetime) -> None:
        """End the steps that a run leaves open."""
        of_run = {"chat_key": run.chat_key, "run_id": run.run_id}
        self._run("close_chat_steps", **of_run, status=status, error=error, now=now)

    def steps(self, chat_key: str, run_id: str) -> list[Step]:
        """The steps of a run in order; `agent_id` is the chat's key, `agent_turn_id` the run's."""
        return self._all(Step, "steps_of_chat_run", chat_key=chat_key, run_id=run_id)

    def steps_like(self, chat_key: str, wanted: str) -> list[Step]:
        """Up to six steps of a chat whose ids begin or end so, the newest first."""
        piece = like_escape(wanted)
        begins = piece if wanted.startswith("step_") else f"step\\_{piece}"
        patterns = {"beginning": f"{begins}%", "ending": f"%{piece}"}
        return self._all(Step, "find_chat_steps", chat_key=chat_key, **patterns)


def _columns(run: ChatRun) -> dict[str, Any]:
    lists = {"user_card_ids": jsonb(run.user_card_ids), "reply_card_ids": jsonb(run.reply_card_ids)}
    return {**msgspec.structs.asdict(run), **lists}
