"""Writes what an existing deployment writes: sections 2 to 5 of the interop facts, as SQL.

`Deployment` stands for all its programs together. Each method is one of their transactions and leaves their rows, the
odd ones included: a row of a queue that is written twice, a result that nobody applies, a head that nobody serves.
It works on any database with those tables and knows nothing of cbx, nor of its tables.
"""

import json
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import uuid6
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

CHANNEL = "public"


@dataclass(frozen=True)
class Turn:
    """A turn as its dispatcher knows it. `turn_epoch` is 0 until it is leased."""

    agent_id: str
    agent_turn_id: str
    inbox_id: str
    turn_epoch: int
    profile_box_id: str
    context_box_id: str
    output_box_id: str
    trace_id: str
    depth: int
    step_id: str | None = None


@dataclass(frozen=True)
class Call:
    """A tool call that a turn waits for."""

    tool_call_id: str
    tool_name: str
    step_id: str


def new(kind: str) -> str:
    """An id such as `turn_<uuid7 hex>`; of an unnamed kind the hex alone."""
    return f"{kind}_{uuid6.uuid7().hex}" if kind else uuid6.uuid7().hex


@dataclass(frozen=True)
class Deployment:
    """The programs of a deployment, in one project, on a connection in autocommit mode."""

    connection: psycopg.Connection[Any]
    project_id: str = "p"

    # --- cards, boxes and who is who

    def project(self) -> None:
        self._run(
            "INSERT INTO public.projects (project_id, title, owner_id) VALUES (%(project_id)s, 'Shop', 'owner')"
        )

    def card(
        self,
        type_: str,
        content: dict[str, Any],
        *,
        role: str | None,
        author_id: str,
        tool_calls: list[Any] | None = None,
        tool_call_id: str | None = None,
        **metadata: Any,
    ) -> str:
        """Save a card as the library does, which overwrites one of the same id; its id."""
        card_id = new("")
        said = {"type": type_, "role": role, "author_id": author_id, "project_id": self.project_id}
        said |= {"tool_call_id": tool_call_id}
        metadata |= {name: value for name, value in said.items() if value is not None}
        self._run(
            "INSERT INTO public.cards (card_id, tenant_id, content, tool_calls, tool_call_id, metadata)"
            " VALUES (%(card_id)s, %(project_id)s, %(content)s, %(tool_calls)s, %(tool_call_id)s,"
            " %(metadata)s || jsonb_build_object('created_at', now()::text))"
            " ON CONFLICT (card_id) DO UPDATE SET content = excluded.content, tool_calls = excluded.tool_calls,"
            " tool_call_id = excluded.tool_call_id, metadata = excluded.metadata, deleted_at = NULL",
            card_id=card_id,
            content=Jsonb(content),
            tool_calls=None if tool_calls is None else Jsonb(tool_calls),
            tool_call_id=tool_call_id,
            metadata=Jsonb(metadata),
        )
        return card_id

    def instruction(self, text: str) -> str:
        content = {"__type__": "TextContent", "text": text}
        return self.card("task.instruction", content, role="user", author_id="delegate_async")

    def context(self, text: str) -> str:
        """A context box with one instruction."""
        return self.box(self.instruction(text))

    def box(self, *card_ids: str) -> str:
        box_id = str(uuid6.uuid7())
        self._run(
            "INSERT INTO public.card_boxes (box_id, tenant_id, card_ids) VALUES (%(box_id)s, %(project_id)s, %(card_ids)s)",
            box_id=box_id,
            card_ids=Jsonb(list(card_ids)),
        )
        return box_id

    def append(self, box_id: str, *card_ids: str) -> None:
        self._run(
            "UPDATE public.card_boxes SET card_ids = coalesce(card_ids, '[]') || %(card_ids)s, updated_at = now()"
            " WHERE tenant_id = %(project_id)s AND box_id = %(box_id)s",
            box_id=box_id,
            card_ids=Jsonb(list(card_ids)),
        )

    def profile(self, name: str, *, worker_target: str = "worker_generic", **fields: Any) -> str:
        """Upload a profile; its box."""
        prompt = f"You are {name}."
        data = {
            "name": name,
            "worker_target": worker_target,
            "tags": [],
            "system_prompt_template": prompt,
            **fields,
        }
        told: dict[str, Any] = {"name": name, "worker_target": worker_target, "tags": []}
        content = {"__type__": "JsonContent", "data": data}
        box_id = self.box(self.card("sys.profile", content, role="system", author_id="api", **told))
        self._run(
            "INSERT INTO resource.profiles (project_id, profile_box_id, name, worker_target, system_prompt_compiled)"
            " VALUES (%(project_id)s, %(box_id)s, %(name)s, %(worker_target)s, %(prompt)s)"
            " ON CONFLICT (project_id, name) DO UPDATE SET profile_box_id = excluded.profile_box_id,"
            " worker_target = excluded.worker_target, updated_at = now()",
            box_id=box_id,
            name=name,
            worker_target=worker_target,
            prompt=prompt,
        )
        return box_id

    def agent(self, agent_id: str, profile_box_id: str, *, worker_target: str = "worker_generic") -> str:
        """Provision an agent: its place on the roster, an identity edge, an idle head."""
        with self.connection.transaction():
            self._run(
                "INSERT INTO resource.project_agents (project_id, agent_id, profile_box_id, worker_target, metadata)"
                " VALUES (%(project_id)s, %(agent_id)s, %(profile_box_id)s, %(worker_target)s,"
                ' \'{"spawned_by": "sys.pmo"}\')',
                agent_id=agent_id,
                profile_box_id=profile_box_id,
                worker_target=worker_target,
            )
            self._run(
                "INSERT INTO state.identity_edges (edge_id, project_id, action, source_agent_id, target_agent_id,"
                " metadata) VALUES (%(edge_id)s, %(project_id)s, 'provision', 'sys.pmo', %(agent_id)s, %(metadata)s)",
                edge_id=new("edge"),
                agent_id=agent_id,
                metadata=Jsonb(
                    {"profile_box_id": profile_box_id, "worker_target": worker_target, "tags": []}
                ),
            )
            self._ensure_head(agent_id)
        return agent_id

    def tool(self, name: str, *, after_execution: str = "suspend", **options: Any) -> None:
        """Upload an external tool, which answers by a report."""
        self._run(
            "INSERT INTO resource.tools (project_id, tool_name, description, parameters, target_subject,"
            " after_execution, options) VALUES (%(project_id)s, %(name)s, 'A tool', '{\"type\": \"object\"}',"
            " 'cg.v1r4.{project_id}.{channel_id}.cmd.tool.' || %(name)s, %(after)s, %(options)s)",
            name=name,
            after=after_execution,
            options=Jsonb(options),
        )

    # --- enqueue and dispatch

    def enqueue(
        self,
        agent_id: str,
        context_box_id: str,
        *,
        source_agent_id: str = "sys.pmo",
        parent: Turn | None = None,
        correlation_id: str | None = None,
        output_box_id: str | None = None,
    ) -> Turn:
        """Insert a queued turn and its edge, and nothing more: nobody promotes it. The minimal SQL dispatcher."""
        turn_id = new("turn")
        correlation = correlation_id or turn_id
        profile = self._value(
            "SELECT profile_box_id::text FROM resource.project_agents"
            " WHERE project_id = %(project_id)s AND agent_id = %(agent_id)s",
            agent_id=agent_id,
        )
        turn = Turn(
            agent_id=agent_id,
            agent_turn_id=turn_id,
            inbox_id=correlation,
            turn_epoch=0,
            profile_box_id=profile,
            context_box_id=context_box_id,
            output_box_id=output_box_id or self.box(),
            trace_id=parent.trace_id if parent else uuid6.uuid7().hex,
            depth=parent.depth + 1 if parent else 1,
        )
        with self.connection.transaction():
            self._queue(turn, correlation, parent)
            self._insert_edge(
                turn, "enqueue", "request", correlation, source=source_agent_id, parent=parent, mode="call"
            )
        return turn

    def dispatch_next(self, agent_id: str) -> str | None:
        """Lease an idle agent for its oldest queued row and promote that; the row's id, None if there was nothing."""
        with self.connection.transaction():
            row = self._row(
                "SELECT * FROM state.agent_inbox WHERE project_id = %(project_id)s AND agent_id = %(agent_id)s"
                " AND status = 'queued' AND message_type = 'turn' ORDER BY created_at LIMIT 1 FOR UPDATE SKIP LOCKED",
                agent_id=agent_id,
            )
            if row is None:
                return None
            self._ensure_head(agent_id)
            epoch = self._lease(row)
            if epoch is None:
                return None
            self._run(
                "UPDATE state.agent_inbox SET status = 'pending', turn_epoch = %(epoch)s, processed_at = NULL,"
                " archived_at = NULL WHERE inbox_id = %(inbox_id)s AND status = 'queued'",
                inbox_id=row["inbox_id"],
                epoch=epoch,
            )
        return str(row["inbox_id"])

    def dispatch(self, agent_id: str, context_box_id: str, **options: Any) -> Turn:
        """`enqueue` and `dispatch_next`; the turn with its epoch, which stays 0 where the agent is busy."""
        turn = self.enqueue(agent_id, context_box_id, **options)
        self.dispatch_next(agent_id)
        return self.now(turn)

    def now(self, turn: Turn) -> Turn:
        """The turn at the epoch that its row has."""
        epoch = self._value(
            "SELECT turn_epoch FROM state.agent_inbox WHERE inbox_id = %(id)s", id=turn.inbox_id
        )
        return replace(turn, turn_epoch=epoch)

    # --- the worker

    def claim(self, agent_id: str) -> list[str]:
        """Take everything that is due for an agent; the ids of the rows."""
        return [
            row["inbox_id"]
            for row in self._rows(
                "WITH due AS (SELECT inbox_id FROM state.agent_inbox WHERE project_id = %(project_id)s"
                " AND agent_id = %(agent_id)s AND status IN ('pending', 'deferred') AND next_retry_at <= now()"
                " ORDER BY next_retry_at, created_at LIMIT 20 FOR UPDATE SKIP LOCKED)"
                " UPDATE state.agent_inbox AS i SET status = 'processing', processed_at = coalesce(processed_at, now())"
                " FROM due WHERE i.inbox_id = due.inbox_id RETURNING i.inbox_id",
                agent_id=agent_id,
            )
        ]

    def begin(self, turn: Turn) -> Turn:
        """Claim a dispatched turn and begin its first step: the head is running, a step has started."""
        assert turn.inbox_id in self.claim(turn.agent_id)
        self._set_head(turn, "status = 'running'")
        return self.step(turn)

    def step(self, turn: Turn, kind: str = "step", status: str = "started") -> Turn:
        """Begin a step; the turn within it."""
        step_id = new(kind)
        self._run(
            "INSERT INTO state.agent_steps (project_id, agent_id, step_id, agent_turn_id, channel_id, trace_id, status,"
            " profile_box_id, context_box_id, output_box_id) VALUES (%(project_id)s, %(agent_id)s, %(step_id)s,"
            " %(turn_id)s, %(channel)s, %(trace_id)s, %(status)s, %(profile)s, %(context)s, %(output)s)",
            agent_id=turn.agent_id,
            step_id=step_id,
            turn_id=turn.agent_turn_id,
            channel=CHANNEL,
            trace_id=turn.trace_id,
            status=status,
            profile=turn.profile_box_id,
            context=turn.context_box_id,
            output=turn.output_box_id,
        )
        return replace(turn, step_id=step_id)

    def think(self, turn: Turn, text: str, *calls: Call) -> None:
        """The model's answer: a request box, a thought in the output box, and the step at `llm_done`."""
        prompt = {"__type__": "TextContent", "text": "You are an agent."}
        rendered = self.card("sys.rendered_prompt", prompt, role="system", author_id="system_assembler")
        request = self.box(rendered, *self.cards_of(turn.output_box_id), *self.cards_of(turn.context_box_id))
        thought = self.card(
            "agent.thought",
            {"__type__": "TextContent", "text": text},
            role="assistant",
            author_id=turn.agent_id,
            tool_calls=[_as_asked(call) for call in calls] or None,
            **self._lineage(turn),
        )
        self.append(turn.output_box_id, thought)
        self._set_step(
            turn,
            "status = 'llm_done', request_box_id = %(request)s, tool_call_ids = %(call_ids)s,"
            ' metadata = \'{"llm_usage": {"total_tokens": 12}}\'',
            request=request,
            call_ids=Jsonb([call.tool_call_id for call in calls]),
        )

    def new_call(self, turn: Turn, tool_name: str, tool_call_id: str | None = None) -> Call:
        """A call that the step of `turn` is about to make."""
        assert turn.step_id is not None
        return Call(tool_call_id or new("call"), tool_name, turn.step_id)

    def ask(self, turn: Turn, call: Call) -> None:
        """Send a call to its tool: a card, an edge, and the anchor by which the report will find its turn."""
        card = self.card(
            "tool.call",
            {"__type__": "ToolCallContent", "tool_name": call.tool_name, "arguments": {}, "status": "called"},
            role=None,
            author_id=turn.agent_id,
            tool_call_id=call.tool_call_id,
            **self._lineage(turn),
        )
        self.append(turn.output_box_id, card)
        with self.connection.transaction():
            self._insert_edge(
                turn,
                "tool_call",
                "request",
                call.tool_call_id,
                source=turn.agent_id,
                parent=turn,
                target=turn,
            )
            self._insert_row(
                turn,
                message_type="command_anchor",
                inbox_id=new("inbox_cmd_anchor"),
                correlation_id=call.tool_call_id,
                headers=self._headers(turn, None, call),
                payload={},
                status="consumed",
            )

    def suspend(self, turn: Turn, *calls: Call, seconds: int = 30) -> None:
        """Wait for calls: the head is suspended with a deadline, the row that carried the turn is consumed."""
        with self.connection.transaction():
            self._set_head(
                turn,
                "status = 'suspended', waiting_tool_count = %(count)s,"
                " resume_deadline = now() + make_interval(secs => %(seconds)s)",
                count=len(calls),
                seconds=seconds,
            )
            for call in calls:
                self._run(
                    "INSERT INTO state.turn_waiting_tools (project_id, agent_id, agent_turn_id, turn_epoch,"
                    " tool_call_id, step_id, tool_name, wait_status, created_at, updated_at) VALUES (%(project_id)s,"
                    " %(agent_id)s, %(turn_id)s, %(epoch)s, %(call_id)s, %(step_id)s, %(name)s, 'waiting', now(), now())",
                    call_id=call.tool_call_id,
                    step_id=call.step_id,
                    name=call.tool_name,
                    **_keys(turn),
                )
            self._set_step(turn, "status = 'suspended'")
        self.consume(turn)

    def wait_for(self, turn: Turn, *tool_names: str, seconds: int = 30) -> list[Call]:
        """`think`, `ask` and `suspend` of a running turn in one; its calls."""
        calls = [self.new_call(turn, name) for name in tool_names]
        self.think(turn, "I need help.", *calls)
        for call in calls:
            self.ask(turn, call)
        self.suspend(turn, *calls, seconds=seconds)
        return calls

    def result_card(
        self,
        turn: Turn,
        call: Call,
        *,
        status: str = "success",
        result: Any = None,
        author_id: str = "tool.help",
    ) -> str:
        """Save a tool's result, and tell nobody."""
        error = None if status == "success" else {"code": "tool_" + status, "message": "It did not work."}
        content = {"status": status, "after_execution": "suspend", "result": result, "error": error}
        return self.card(
            "tool.result",
            {"__type__": "ToolResultContent", **content},
            role="tool",
            author_id=author_id,
            tool_call_id=call.tool_call_id,
            function_name=call.tool_name,
            **{**self._lineage(turn), "step_id": call.step_id},
        )

    def report(
        self,
        turn: Turn,
        call: Call,
        *,
        status: str = "success",
        result: Any = None,
        message_type: str = "tool_result",
        author_id: str = "tool.help",
    ) -> str:
        """A tool's answer: a card, a pending row for the waiting turn, and the edge back; the row's id."""
        card = self.result_card(turn, call, status=status, result=result, author_id=author_id)
        inbox_id = new("inbox")
        with self.connection.transaction():
            self._insert_row(
                turn,
                message_type=message_type,
                inbox_id=inbox_id,
                correlation_id=call.tool_call_id,
                headers=self._headers(turn, None, call),
                payload={"after_execution": "suspend", "status": status, "tool_result_card_id": card},
                status="pending",
            )
            self._insert_edge(
                turn, "report", "response", call.tool_call_id, source=author_id, parent=turn, target=turn
            )
        return inbox_id

    def resume(self, turn: Turn, inbox_id: str) -> Turn:
        """Apply a claimed report, the last that the turn waits for: it runs again, one epoch further."""
        with self.connection.transaction():
            row = self._row("SELECT * FROM state.agent_inbox WHERE inbox_id = %(id)s", id=inbox_id)
            assert row is not None
            card = row["payload"]["tool_result_card_id"]
            self._run(
                "UPDATE state.turn_waiting_tools SET wait_status = 'applied', tool_result_card_id = %(card)s,"
                " received_at = now(), applied_at = now(), updated_at = now() WHERE project_id = %(project_id)s"
                " AND agent_turn_id = %(turn_id)s AND turn_epoch = %(epoch)s AND tool_call_id = %(call_id)s"
                " AND agent_id = %(agent_id)s",
                card=card,
                call_id=row["correlation_id"],
                **_keys(turn),
            )
            self.append(turn.output_box_id, card)
            self._set_head(
                turn,
                "status = 'running', turn_epoch = turn_epoch + 1, waiting_tool_count = 0, resume_deadline = NULL",
            )
        further = replace(turn, turn_epoch=turn.turn_epoch + 1, inbox_id=inbox_id)
        step = self.step(further, "step_res", "tool_dispatched")
        self._set_step(step, "status = 'completed', ended_at = now()")
        return self.step(further)

    def finish(
        self,
        turn: Turn,
        text: str = "Done.",
        *,
        status: str = "completed",
        content: dict[str, Any] | None = None,
        **metadata: Any,
    ) -> str:
        """End a running turn: a deliverable, the agent idle, the next turn promoted; the deliverable's id."""
        deliverable = self.card(
            "task.deliverable",
            content or {"__type__": "TextContent", "text": text},
            role="assistant",
            author_id=turn.agent_id,
            **self._lineage(turn),
            **metadata,
        )
        self.append(turn.output_box_id, deliverable)
        with self.connection.transaction():
            self._set_head(turn, _IDLE)
            self._run(
                "DELETE FROM state.turn_waiting_tools WHERE project_id = %(project_id)s AND agent_id = %(agent_id)s"
                " AND agent_turn_id = %(turn_id)s AND turn_epoch = %(epoch)s",
                **_keys(turn),
            )
            self._run(
                "INSERT INTO state.agent_state_pointers (project_id, agent_id, last_output_box_id)"
                " VALUES (%(project_id)s, %(agent_id)s, %(output)s) ON CONFLICT (project_id, agent_id) DO UPDATE"
                " SET last_output_box_id = excluded.last_output_box_id, updated_at = now()",
                agent_id=turn.agent_id,
                output=turn.output_box_id,
            )
        self._set_step(
            turn,
            "status = %(status)s, ended_at = now()",
            status=status,
        )
        self.consume(turn)
        self.dispatch_next(turn.agent_id)
        return deliverable

    def consume(self, turn: Turn) -> None:
        """The row that carries the turn is done."""
        self.consume_row(turn.inbox_id)

    # --- what goes wrong there

    def consume_row(self, inbox_id: str) -> None:
        """A row is done, whatever became of what it asked for: consumed, but not applied."""
        self._run(
            "UPDATE state.agent_inbox SET status = 'consumed', archived_at = coalesce(archived_at, now())"
            " WHERE inbox_id = %(inbox_id)s AND status IN ('pending', 'processing')",
            inbox_id=inbox_id,
        )

    def retransmit(self, turn: Turn) -> str:
        """The watchdog's second row for a turn that is dispatched already (W3), and its touch; the row's id."""
        inbox_id = f"{turn.agent_turn_id}:watchdog_retransmit:{new('')}"
        self._set_head(turn, "status = 'dispatched'")
        self._queue(turn, inbox_id, None)
        self._insert_edge(
            turn, "enqueue", "request", inbox_id, source="sys.pmo.l0_guard", parent=None, mode="call"
        )
        return inbox_id

    def reap(self, turn: Turn) -> Turn:
        """The watchdog ends a running turn: a step of its own, the agent idle, one epoch further."""
        reaped = replace(turn, step_id=f"step_reap_{turn.agent_turn_id[-8:]}")
        deliverable = self.card(
            "task.deliverable",
            partial_result("timeout_reaped_by_watchdog"),
            role="assistant",
            author_id=turn.agent_id,
            agent_turn_id=turn.agent_turn_id,
            partial=True,
            stop_reason="timeout_reaped_by_watchdog",
        )
        self.append(turn.output_box_id, deliverable)
        with self.connection.transaction():
            self._set_head(turn, "turn_epoch = turn_epoch + 1, " + _IDLE)
            self._run(
                "INSERT INTO state.agent_steps (project_id, agent_id, step_id, agent_turn_id, status, error, ended_at)"
                " VALUES (%(project_id)s, %(agent_id)s, %(step_id)s, %(turn_id)s, 'failed',"
                " 'timeout_reaped_by_watchdog', now())",
                turn_id=turn.agent_turn_id,
                **_step_keys(reaped),
            )
        return replace(reaped, turn_epoch=turn.turn_epoch + 1)

    def stop(self, turn: Turn, reason: str = "no longer needed") -> str:
        """Ask for the end of a turn; the row's id."""
        inbox_id = new("inbox")
        self._insert_row(
            turn,
            message_type="stop",
            inbox_id=inbox_id,
            correlation_id=inbox_id,
            headers=self._headers(turn, None),
            payload={"reason": reason},
            status="pending",
        )
        return inbox_id

    def waiting_call(self, turn: Turn) -> str:
        """The id of the call that a suspended turn waits for."""
        found = self._value(
            "SELECT tool_call_id FROM state.turn_waiting_tools WHERE project_id = %(project_id)s"
            " AND agent_turn_id = %(turn_id)s AND wait_status = 'waiting'",
            turn_id=turn.agent_turn_id,
        )
        return str(found)

    # --- how

    def cards_of(self, box_id: str) -> list[str]:
        """The ids that a box lists."""
        found = self._value("SELECT card_ids FROM public.card_boxes WHERE box_id = %(box_id)s", box_id=box_id)
        return list(found or [])

    def _set_head(self, turn: Turn, assignments: str, **parameters: Any) -> None:
        where = (
            " WHERE project_id = %(project_id)s AND agent_id = %(agent_id)s AND active_agent_turn_id = %(turn_id)s"
            " AND turn_epoch = %(epoch)s"
        )
        update = "UPDATE state.agent_state_head SET updated_at = now(), " + assignments + where  # noqa: S608  # our own
        self._run(update, **parameters, **_keys(turn))

    def _set_step(self, turn: Turn, assignments: str, **parameters: Any) -> None:
        where = " WHERE project_id = %(project_id)s AND agent_id = %(agent_id)s AND step_id = %(step_id)s"
        update = "UPDATE state.agent_steps SET " + assignments + where  # noqa: S608  # our own
        self._run(update, **parameters, **_step_keys(turn))

    def _ensure_head(self, agent_id: str) -> None:
        self._run(
            "INSERT INTO state.agent_state_head (project_id, agent_id, status, turn_epoch)"
            " VALUES (%(project_id)s, %(agent_id)s, 'idle', 0) ON CONFLICT DO NOTHING",
            agent_id=agent_id,
        )

    def _lease(self, row: dict[str, Any]) -> int | None:
        headers, payload = row["context_headers"], row["payload"]
        epoch = self._value(
            "UPDATE state.agent_state_head SET status = 'dispatched', active_agent_turn_id = %(turn_id)s,"
            " turn_epoch = turn_epoch + 1, active_channel_id = %(channel)s, active_recursion_depth = %(depth)s,"
            " parent_step_id = %(parent_step_id)s, trace_id = %(trace_id)s,"
            " profile_box_id = coalesce(%(profile)s::uuid, profile_box_id),"
            " context_box_id = coalesce(%(context)s::uuid, context_box_id),"
            " output_box_id = coalesce(%(output)s::uuid, output_box_id), expecting_correlation_id = NULL,"
            " waiting_tool_count = 0, resume_deadline = NULL, updated_at = now()"
            " WHERE project_id = %(project_id)s AND agent_id = %(agent_id)s AND status = 'idle' RETURNING turn_epoch",
            agent_id=row["agent_id"],
            turn_id=row["agent_turn_id"],
            channel=row["channel_id"],
            depth=int(headers["CG-Recursion-Depth"]),
            parent_step_id=headers.get("CG-Parent-Step-Id"),
            trace_id=headers["traceparent"].split("-")[1],
            profile=payload["profile_box_id"],
            context=payload["context_box_id"],
            output=payload["output_box_id"],
        )
        return None if epoch is None else int(epoch)

    def _headers(self, turn: Turn, parent: Turn | None, call: Call | None = None) -> dict[str, str]:
        headers = {
            "CG-Project-Id": self.project_id,
            "CG-Agent-Id": turn.agent_id,
            "CG-Channel-Id": CHANNEL,
            "CG-Turn-Id": turn.agent_turn_id,
            "CG-Turn-Epoch": str(turn.turn_epoch),
            "CG-Recursion-Depth": str(turn.depth),
            "traceparent": f"00-{turn.trace_id}-{uuid6.uuid7().hex[-16:]}-01",
        }
        if call is not None:
            headers |= {"CG-Tool-Call-Id": call.tool_call_id, "CG-Step-Id": call.step_id}
        if parent is not None:
            headers |= {"CG-Parent-Agent-Id": parent.agent_id, "CG-Parent-Turn-Id": parent.agent_turn_id}
            headers |= {"CG-Parent-Step-Id": parent.step_id} if parent.step_id else {}
        return headers

    def _queue(self, turn: Turn, inbox_id: str, parent: Turn | None) -> None:
        self._insert_row(
            turn,
            message_type="turn",
            inbox_id=inbox_id,
            correlation_id=inbox_id,
            headers=self._headers(turn, parent),
            payload=_pointers(turn),
            status="queued",
            mode="call",
        )

    def _insert_row(
        self,
        turn: Turn,
        *,
        message_type: str,
        inbox_id: str,
        correlation_id: str,
        headers: dict[str, str],
        payload: dict[str, Any],
        status: str,
        mode: str | None = None,
    ) -> None:
        self._run(
            "INSERT INTO state.agent_inbox (inbox_id, project_id, agent_id, channel_id, message_type, enqueue_mode,"
            " correlation_id, agent_turn_id, turn_epoch, context_headers, payload, status)"
            " VALUES (%(inbox_id)s, %(project_id)s, %(agent_id)s, %(channel)s, %(message_type)s, %(mode)s,"
            " %(correlation_id)s, %(turn_id)s, %(epoch)s, %(headers)s, %(payload)s, %(status)s)",
            inbox_id=inbox_id,
            channel=CHANNEL,
            message_type=message_type,
            mode=mode,
            correlation_id=correlation_id,
            headers=Jsonb(headers),
            payload=Jsonb(payload),
            status=status,
            **_keys(turn),
        )

    def _insert_edge(
        self,
        turn: Turn,
        primitive: str,
        phase: str,
        correlation_id: str,
        *,
        source: str,
        parent: Turn | None,
        target: Turn | None = None,
        mode: str | None = None,
    ) -> None:
        asked = target or turn
        self._run(
            "INSERT INTO state.execution_edges (edge_id, project_id, channel_id, primitive, edge_phase,"
            " source_agent_id, source_agent_turn_id, source_step_id, target_agent_id, target_agent_turn_id,"
            " correlation_id, enqueue_mode, recursion_depth, trace_id, parent_step_id, metadata)"
            " VALUES (%(edge_id)s, %(project_id)s, %(channel)s, %(primitive)s, %(phase)s, %(source)s, %(source_turn)s,"
            " %(source_step)s, %(target)s, %(target_turn)s, %(correlation_id)s, %(mode)s, %(depth)s, %(trace_id)s,"
            " %(source_step)s, %(metadata)s) ON CONFLICT DO NOTHING",
            edge_id=new("edge"),
            channel=CHANNEL,
            primitive=primitive,
            phase=phase,
            source=source,
            source_turn=parent.agent_turn_id if parent else None,
            source_step=parent.step_id if parent else None,
            target=asked.agent_id,
            target_turn=asked.agent_turn_id,
            correlation_id=correlation_id,
            mode=mode,
            depth=turn.depth,
            trace_id=turn.trace_id,
            metadata=Jsonb(
                {
                    "message_type": "turn" if primitive == "enqueue" else None,
                    "enqueue_mode": mode,
                    "inbox_id": correlation_id,
                    "recursion_depth": turn.depth,
                    "cg_ctx": self._context(asked, parent),
                }
            ),
        )

    def _context(self, turn: Turn, parent: Turn | None) -> dict[str, Any]:
        return {
            "project_id": self.project_id,
            "channel_id": CHANNEL,
            "agent_id": turn.agent_id,
            "agent_turn_id": turn.agent_turn_id,
            "turn_epoch": turn.turn_epoch,
            "step_id": turn.step_id,
            "tool_call_id": None,
            "trace_id": turn.trace_id,
            "recursion_depth": turn.depth,
            "parent_agent_id": parent.agent_id if parent else None,
            "parent_agent_turn_id": parent.agent_turn_id if parent else None,
            "parent_step_id": parent.step_id if parent else None,
        }

    def _lineage(self, turn: Turn) -> dict[str, Any]:
        return {"agent_turn_id": turn.agent_turn_id, "step_id": turn.step_id, "trace_id": turn.trace_id}

    def _run(self, query: str, **parameters: Any) -> psycopg.Cursor[Any]:
        return self.connection.execute(query.encode(), {"project_id": self.project_id, **parameters})

    def _rows(self, query: str, **parameters: Any) -> list[dict[str, Any]]:
        with self.connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(query.encode(), {"project_id": self.project_id, **parameters}).fetchall()

    def _row(self, query: str, **parameters: Any) -> dict[str, Any] | None:
        found = self._rows(query, **parameters)
        return found[0] if found else None

    def _value(self, query: str, **parameters: Any) -> Any:
        row = self._row(query, **parameters)
        return None if row is None else next(iter(row.values()))


def partial_result(reason: str) -> dict[str, Any]:
    """The content of the deliverable that a turn gets which did not end well."""
    data = {
        "schema_version": 1,
        "kind": "fallback_deliverable",
        "status": "partial",
        "partial": True,
        "message": "Partial result (turn did not finish cleanly).",
        "fields": [{"name": "reason", "value": reason}],
        "diagnostics": {"source": "s", "tool_result_count": 0, "partial": True, "terminal_status": "failed"},
    }
    return {"__type__": "JsonContent", "data": data}


_IDLE = (
    "status = 'idle', active_agent_turn_id = NULL, active_channel_id = NULL, active_recursion_depth = 0,"
    " parent_step_id = NULL, trace_id = NULL, context_box_id = NULL, output_box_id = NULL,"
    " expecting_correlation_id = NULL, waiting_tool_count = 0, resume_deadline = NULL"
)


def _keys(turn: Turn) -> dict[str, Any]:
    return {"agent_id": turn.agent_id, "turn_id": turn.agent_turn_id, "epoch": turn.turn_epoch}


def _step_keys(turn: Turn) -> dict[str, Any]:
    return {"agent_id": turn.agent_id, "step_id": turn.step_id}


def _pointers(turn: Turn) -> dict[str, Any]:
    return {
        "profile_box_id": turn.profile_box_id,
        "context_box_id": turn.context_box_id,
        "output_box_id": turn.output_box_id,
        "runtime_config": {},
    }


def _as_asked(call: Call) -> dict[str, Any]:
    function = {"name": call.tool_name, "arguments": json.dumps({})}
    return {"id": call.tool_call_id, "type": "function", "function": function}
