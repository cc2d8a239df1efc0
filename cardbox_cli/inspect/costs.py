"""The costs of the requests of a turn, of an agent's last turns, of a chat's last runs, or of a box."""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from cardbox_cli.chat.runs.recorded_runs import sent_by_chat
from cardbox_cli.context.cost.account import Account, Sent, account_of, answered_requests
from cardbox_cli.context.cost.answer import CostAnswer, Costs, Prices, cost_answer, costs_of
from cardbox_cli.context.cost.findings import ChatSubject
from cardbox_cli.context.request import DEFAULT_OPTIONS, ComposeOptions, profile_of
from cardbox_cli.errors import NotFound, UsageError
from cardbox_cli.execution.requests.recorded_requests import RecordedRequests, no_turn_error
from cardbox_cli.execution.requests.request_series import read_turn_requests
from cardbox_cli.execution.requests.turn_requests import NEXT
from cardbox_cli.inspect.requests import Requests, find_box
from cardbox_cli.providers.formats import provider_of
from cardbox_cli.providers.models import window
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.tools import TABLE as TOOLS_TABLE
from cardbox_cli.store.tools import ToolStore
from cardbox_cli.store.views.turn_views import TurnFilter, TurnRow, TurnViews
from cardbox_cli.text.command_lines import command_line
from cardbox_cli.text.quantities import format_count
from cardbox_cli.text.times import parse_time

MAX_RECENT = 20
"""The number of an agent's turns, or of a chat's runs, that are counted if no `since` is given."""
TOP = 20
"""The default number of cards of an answer, and of lines of a report."""


class CostedSeries(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that belong together, with the `kind` and the `id` of their source, and notes.

    `profile` is the name of the profile of all of them, if it is known; `chat` is the chat that sent them.
    """

    kind: str
    id: str
    series: Sequence[Sent]
    profile: str | None = None
    chat: ChatSubject | None = None
    notes: list[str] = []
    read_only: frozenset[str] = frozenset()

    def account(self) -> Account:
        return account_of(self.series)

    def costs(self, account: Account, prices: Prices | None = None) -> Costs:
        """Return the costs of the account. Without prices, the costs have no amounts of money."""
        return costs_of(
            account, profile=self.profile, chat=self.chat, prices=prices, read_only=self.read_only
        )

    def answer(
        self, costs: Costs | None = None, *, top: int = TOP, project_option: Sequence[str] = ()
    ) -> CostAnswer:
        """Return the costs for programs. Printed commands end with `project_option`."""
        costs = costs or self.costs(self.account())
        return cost_answer(
            self.kind, self.id, costs, top=top, project_option=project_option, notes=self.notes
        )


class CostReader:
    """Reads series of requests of one project. It collects notes in the order in which they arise.

    `options` may name another model for the token counts. A box is rendered for `profile`. `since` is a time
    in the form of the command line.
    """

    def __init__(
        self,
        boxes: BoxStore,
        turns: TurnViews,
        *,
        options: ComposeOptions = DEFAULT_OPTIONS,
        profile: str | None = None,
        since: str | None = None,
    ) -> None:
        self._boxes = boxes
        self._turns = turns
        self._options = options
        self._profile = profile
        self._since = since
        self._begin = parse_time(since, "since")
        self._limit = None if since else MAX_RECENT
        self._notes: list[str] = []
        self._costed = partial(CostedSeries, notes=self._notes, read_only=read_only_tools(boxes))

    def read(self, kind: str, name: str) -> CostedSeries:
        """Return the requests of a `turn`, a `box`, a `source` that is one of both, an `agent` or a `chat`.

        Raises NotFound, AmbiguousId, and UsageError for a profile or time that cannot be used with `kind`.
        """
        if self._since is not None and kind not in ("agent", "chat"):
            raise UsageError("since requires an agent or a chat", hint="remove since")
        if self._profile is not None and kind in ("turn", "agent", "chat"):
            raise UsageError(
                "--profile requires a box, not a turn, agent or chat",
                hint="remove --profile, or pass a box",
            )
        match kind:
            case "source":
                return self._read_source(name)
            case "turn":
                return self._read_turn(name)
            case "agent":
                return self._read_agent(name)
            case "chat":
                return self._read_chat(name)
        return self._read_box(name)

    def _read_source(self, given: str) -> CostedSeries:
        box_id = None if given.startswith("turn_") else find_box(self._boxes, given)
        if box_id is not None:
            return self._read_box(box_id)
        try:
            turn_id = self._turns.resolve(given)
        except NotFound:
            raise NotFound(
                f"no box or turn {given!r} in project {self._boxes.project_id!r}",
                hint="`cbx box list` and `cbx turn list` show the newest",
            ) from None
        return self.read("turn", turn_id)

    def _read_turn(self, given: str) -> CostedSeries:
        turn = self._turns.get(self._turns.resolve(given))
        series = self._sent_by(turn, self._requests())
        return self._costed(kind="turn", id=turn.agent_turn_id, series=series, profile=self._profile_of(turn))

    def _read_agent(self, agent: str) -> CostedSeries:
        """Return the requests of an agent's turns, the oldest first. Raises NotFound if it has no turns."""
        where = TurnFilter(agent_id=agent, since=self._begin)
        turns = list(self._turns.newest(where, limit=self._limit))[::-1]
        if not turns:
            raise no_turn_error(self._turns, agent, "" if self._since is None else f" since {self._since}")
        self._notes.append(f"agent {agent!r}: {format_count(len(turns), 'turn')}")
        requests = self._requests()
        series = [sent for turn in turns for sent in self._sent_by(turn, requests)]
        return self._costed(kind="agent", id=agent, series=series, profile=self._profile_of(turns[-1]))

    def _read_chat(self, key: str) -> CostedSeries:
        """Return the requests of a chat's runs, the oldest first; if there are none, its next one, composed.

        Raises NotFound for an unknown chat, and for one without runs since then.
        """
        boxes, since = self._boxes, self._since
        sent = sent_by_chat(boxes.database, boxes.project_id, key, since=self._begin, most=self._limit)
        if since is not None and not sent.runs:
            raise NotFound(
                f"chat {key!r} has no run since {since} in project {boxes.project_id!r}",
                hint=f"`{command_line(['chat', 'show', key])}` shows the chat's last runs",
            )
        self._notes.append(f"chat {key!r}: {format_count(sent.runs, 'run')}")
        series = self._recounted(sent.series)
        if not series:
            requests = self._requests()
            series = self._next(requests.recorded(chat=key), requests)
        return self._costed(kind="chat", id=key, series=series, chat=sent.chat)

    def _read_box(self, given: str) -> CostedSeries:
        """Return one request for each answer in a box. Raises NotFound."""
        view = self._requests(self._profile).read_boxes([given], by_model=True)
        series = answered_requests(view.request, provider_of(view.format))
        if len(series) > 1:
            self._notes.append(
                f"{format_count(len(series), 'request')}: one for each answer in the box, "
                "as cbx would compose it"
            )
        return self._costed(
            kind="box", id=view.name.removeprefix("box "), series=series, profile=self._profile
        )

    def _requests(self, profile: str | None = None) -> Requests:
        return Requests(self._boxes, self._turns, options=self._options, profile=profile)

    def _sent_by(self, turn: TurnRow, requests: Requests) -> list[Sent]:
        """Return the requests of a turn's steps. Without steps, compose and return its next request."""
        sent = self._recounted(read_turn_requests(self._boxes.database, self._boxes.project_id, turn))
        if sent:
            return sent
        composed = self._next(requests.recorded(turn=turn.agent_turn_id), requests)
        return [msgspec.structs.replace(each, agent_turn_id=turn.agent_turn_id) for each in composed]

    def _recounted(self, series: list[Sent]) -> list[Sent]:
        """Return the same requests. If the options name a model, count their tokens for that model."""
        model, replace = self._options.model, msgspec.structs.replace
        if model is None:
            return series
        return [replace(sent, request=replace(sent.request, model=model)) for sent in series]

    def _next(self, steps: RecordedRequests | None, requests: Requests) -> list[Sent]:
        assert steps is not None
        try:
            view = requests.read_step(steps, NEXT)
        except NotFound:
            return []
        self._notes.append(f"{steps.name} has sent nothing: its next request as cbx would compose it")
        return [Sent(request=view.request, provider=provider_of(view.format))]

    def _profile_of(self, turn: TurnRow) -> str | None:
        """Return the name of the turn's profile, if its box has one."""
        if turn.profile_box_id is None:
            return None
        slots = self._boxes.slots(turn.profile_box_id)
        name = profile_of(slot.card for slot in slots if slot.card is not None).get("name")
        return name if isinstance(name, str) else None


def read_only_tools(boxes: BoxStore) -> frozenset[str]:
    """Return the names of the project's tools that are registered as read-only."""
    if TOOLS_TABLE not in boxes.database.tables:
        return frozenset()
    tools = ToolStore(boxes.database, boxes.project_id).all()
    return frozenset(tool.tool_name for tool in tools if tool.is_read_only)


# The share by which an estimate may differ from a provider's count without a word about it.
_MAX_DIFFERENCE = 0.2


def cost_facts(costs: Costs, format_tokens: Callable[..., str]) -> dict[str, str]:
    """Return a summary of the costs, as a text for each fact. `format_tokens` takes a number and `exact`."""
    account, steps = costs.account, costs.account.steps
    facts = {
        "requests": str(len(steps)),
        "tokens": f"{format_tokens(account.tokens, exact=account.exact)} in all",
    }
    if steps:
        step = max(steps, key=lambda step: step.tokens)
        holds = window(step.model)
        of_window = "" if holds is None else f", {step.tokens / holds:.1%} of the window of {step.model}"
        size = format_tokens(step.tokens, exact=not step.estimated)
        facts["largest"] = f"{size} tokens in request {step.number}{of_window}"
    if account.reported:
        reported = sum(step.reported or 0 for step in account.reported)
        estimate = sum(step.tokens for step in account.reported)
        facts["reported"] = (
            f"{reported:,} tokens by the provider, for {len(account.reported)} of "
            f"{format_count(len(steps), 'request')}"
        )
        if abs(reported - estimate) > max(reported, estimate) * _MAX_DIFFERENCE:
            facts["differs"] = (
                f"cbx counts {format_tokens(estimate, exact=account.exact)} tokens in these: it sees only "
                "what is in the cards"
            )
    if len(steps) > 1:
        broken = sum(step.breaks for step in steps)
        share = account.cached_tokens / account.tokens if account.tokens else 0
        how = f"broken {format_count(broken, 'time')}" if broken else "never broken"
        facts["cache"] = (
            f"keeps {format_tokens(account.cached_tokens, exact=account.exact)} tokens, {share:.1%}; {how}"
        )
    money = costs.money
    if money is not None and money.amount is not None:
        facts["money"] = f"{money.amount:.4f} {money.currency}; {money.without_cache:.4f} without a cache"
    elif money is not None:
        facts["money"] = "unknown"
    return facts
