"""Base classes of formats whose messages are a role and a list of parts.

A message becomes one card for each run of parts of one type: text and tool calls, a tool's result, a thought,
or parts that only this format knows. A card stores the original parts only if its own fields cannot hold them
(`context/sources`). In requests, adjacent messages of one role become one message, which begins with tool
results. System text is separate.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import dropwhile
from typing import Any, NamedTuple

import msgspec

from cardbox_cli.context import messages as speakers
from cardbox_cli.context import sources
from cardbox_cli.context.losses import unsent_detail, unsent_keys, unsent_of_message
from cardbox_cli.context.messages import OF_ONE_FORMAT, Message, NoMessage, never_a_message, standard_body
from cardbox_cli.context.parts import (
    MalformedAnswer,
    answered_call,
    answering,
    called_function,
    file_of,
    is_text,
    kind,
    list_at,
    list_of,
    lost_result,
    other_calls,
    result_text,
    text_at,
    text_part,
)
from cardbox_cli.context.provider import (
    AnswerReader,
    AnyCard,
    Body,
    ExchangedIds,
    MessageFiles,
    OwnIds,
    Provider,
    SentMessage,
)
from cardbox_cli.context.request import Request
from cardbox_cli.context.sources import imported_card, keep, same_json
from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import ASIDE, INSTRUCTION, REASONING, RENDERED_PROMPT, THOUGHT, TOOL_RESULT
from cardbox_cli.model.cards import Card, CardDraft

Part = Any
# The type of the cards that a run of text makes.
_TYPES = {"user": INSTRUCTION, "assistant": THOUGHT, "system": RENDERED_PROMPT}


class AnsweredCall(NamedTuple):
    """The call that a tool's result answers. `id` is "" if the part has no id. `name` is the tool's name."""

    id: str
    name: str = ""


class _TypedPart(NamedTuple):
    """A part with the type and text of its card, and its call. `is_exact` means the card can restore it."""

    type: str
    part: Part
    text: str = ""
    is_exact: bool = False
    call: dict[str, Any] | None = None
    answers: str | None = None


class PartsProvider(Provider):
    """A provider whose messages are lists of parts.

    `has_detail`: images have a level of detail. `names_results`: a result has the name of its tool.
    `has_refusals`: a refusal has its own type of part. `parts_title`: the provider's name in sentences about
    parts that only this provider knows.
    """

    has_detail = False
    names_results = False
    has_refusals = False

    @property
    def parts_title(self) -> str:
        return self.title

    @abstractmethod
    def is_thought(self, part: Part) -> bool: ...

    @abstractmethod
    def is_plain(self, part: Part) -> bool:
        """Return whether a part of an assistant's message is plain output, which a THOUGHT card can hold."""

    @abstractmethod
    def words(self, part: Part) -> str:
        """Return the text of a part for a reader, or "" if it has no text."""

    @abstractmethod
    def call(self, part: Part) -> dict[str, Any] | None:
        """Return the tool call of the chat form for a call, or None for other parts. A missing id is ""."""

    @abstractmethod
    def answered(self, part: Part) -> AnsweredCall | None:
        """Return the call that a part answers, or None if the part is not a result."""

    @abstractmethod
    def chat_files(self, part: Part) -> list[dict[str, Any]]:
        """Return the chat form of a part with files or a refusal. Returns [] for other parts."""

    @abstractmethod
    def make(self, body: Body, *, failed: bool = False) -> list[Part]:
        """Convert a message in the chat form to parts. Content that the format lacks becomes text."""

    def is_failed_result(self, part: Part) -> bool:
        return False

    def sends_other_call(self, call: Any) -> bool:
        """Return whether a call that is not a function call, and its result, can be sent as parts."""
        return False

    def other_result(self, part: Part) -> Part:
        """Convert the result of a function call to the result of a call of another type."""
        return part

    def is_exact(self, part: Part) -> bool:
        """Return True if `make` surely restores this call or result. If False, the caller runs `make`."""
        return False

    def losses_of_part(self, part: Part) -> Iterable[str]:
        """Yield the losses of a part in the chat form, unless it is thinking or only this format knows it."""
        return ()

    def text_alone(self, role: str, part: Part) -> str | None:
        """Return the text of a part if `make` can restore the part from only the text, or None.

        By default, such a part has only the key `text`, and the text is not blank.
        """
        if type(part) is not dict or len(part) != 1:
            return None
        text = part.get("text")
        return text if type(text) is str and not text.isspace() and text else None

    def draft_parts(self, role: str, parts: Sequence[Part]) -> list[CardDraft]:
        """Return the cards of a message's parts. A message without parts makes one empty card."""
        if not parts:
            return [imported_card(_TYPES[role], "", role=role)]
        if len(parts) == 1 and (text := self.text_alone(role, parts[0])) is not None:
            return [imported_card(_TYPES[role], text, role=role)]
        # Each result and each thought has its own card.
        runs = speakers.neighbours(
            self._typed_parts(role, parts),
            lambda before, each: each.type == before.type and each.type not in (TOOL_RESULT, REASONING),
        )
        return [self._run_card(role, run) for run in runs]

    def _typed_parts(self, role: str, parts: Sequence[Part]) -> Iterator[_TypedPart]:
        """Yield the parts with their types.

        A call or result without an id gets its tool's name as id. Repeated names in a message are numbered.
        Such a result belongs to the nearest call with the same id.
        """
        times: dict[str, int] = {}

        def identified(call_id: str, name: str) -> str:
            if call_id:
                return call_id
            times[name] = times.get(name, 0) + 1
            return name if times[name] == 1 else f"{name}_{times[name]}"

        for part in parts:
            if (text := self.text_alone(role, part)) is not None:
                yield _TypedPart(_TYPES[role], part, text, is_exact=True)
                continue
            call = self.call(part) if role == "assistant" else None
            answered = self.answered(part) if role == "user" else None
            if call is not None:
                name = call.get("function", {}).get("name", "")
                call["id"] = identified(call["id"], name)
                yield _TypedPart(THOUGHT, part, is_exact=self.is_exact(part), call=call)
            elif answered is not None:
                words, is_exact = self.words(part), self.is_exact(part)
                yield _TypedPart(TOOL_RESULT, part, words, is_exact, answers=identified(*answered))
            elif role != "assistant" or self.is_plain(part):
                yield _TypedPart(_TYPES[role], part, self.words(part))
            else:
                yield _TypedPart(REASONING if self.is_thought(part) else ASIDE, part, self.words(part))

    def _run_card(self, role: str, run: Sequence[_TypedPart]) -> CardDraft:
        first, parts = run[0], [each.part for each in run]
        text = first.text if len(run) == 1 else "\n".join(filter(None, (each.text for each in run)))
        card = imported_card(
            first.type,
            text,
            role="tool" if first.type == TOOL_RESULT else role,
            tool_calls=[each.call for each in run if each.call is not None] or None,
            tool_call_id=first.answers or None,
        )
        return card if self._is_held(card, run) else keep(card, self.format, source_blocks=parts)

    def _is_held(self, card: CardDraft, run: Sequence[_TypedPart]) -> bool:
        """Return whether the card's own fields can restore its parts. They always put text before calls."""
        if all(each.is_exact for each in run) and not any(each.text for each in run[1:]):
            return True
        if card.type == TOOL_RESULT and self.names_results:
            return False  # the card does not name the tool
        return same_json(self.standard_parts(card), [each.part for each in run])

    def own_parts(self, card: AnyCard) -> list[Part] | None:
        """Return the original parts that a card stores in this format, or None if it stores none."""
        parts = card.metadata.get(sources.BLOCKS)
        is_own = card.metadata.get(sources.FORMAT) == self.format
        return parts if is_own and isinstance(parts, list) else None

    def standard_parts(self, card: AnyCard) -> list[Part]:
        if card.type in OF_ONE_FORMAT:
            return []
        body, answered = self.chat_body(card), answered_call(card)
        if self._is_sent_as_text(card, body):
            return self.make({"role": "user", "content": result_text(body, failed=self.is_failed(card))})
        made = self.make(body, failed=self.is_failed(card))
        return made if answered is None else [self.other_result(part) for part in made]

    def _is_sent_as_text(self, card: AnyCard, body: Body) -> bool:
        """Return whether a card is a result that is sent as text: it has no call id, or its call is text."""
        if body["role"] not in ("tool", "function"):
            return False
        answered = answered_call(card)
        is_named = self.names_results and body["role"] == "tool" and bool(body.get("name"))
        is_old = not body.get("tool_call_id") and not is_named
        return is_old or (answered is not None and not self.sends_other_call(answered))

    def parts_of(self, card: AnyCard) -> list[Part]:
        """Return the original parts of a card, or else the parts made of its own fields."""
        own = self.own_parts(card)
        return self.standard_parts(card) if own is None else own

    def encode(self, card: Card) -> Body | NoMessage:
        nothing = never_a_message(card)
        if nothing is not None:
            return nothing
        parts = self.parts_of(card)
        if not parts:
            return NoMessage(f"nothing that {self.parts_title} would take: empty, or of another format alone")
        return {"role": speakers.role_of(card), "content": parts}

    def exchanged_ids(self, body: Body) -> ExchangedIds:
        parts = list_at(body, "content")
        calls = [call["id"] for call in map(self.call, parts) if call is not None]
        return ExchangedIds(calls, [each.id for each in map(self.answered, parts) if each is not None])

    def chat_original(self, card: AnyCard) -> Body | None:
        parts = self.own_parts(card)
        if parts is None:
            return None
        body = standard_body(card)
        files = [_sayable(body["role"], self.chat_files(part)) for part in parts]
        if not any(files):
            return body
        made = [
            each
            for chat_parts, part in zip(files, parts, strict=True)
            for each in chat_parts or [text_part(words) for words in [self.words(part)] if words]
        ]
        return {**body, "content": made}

    def keeps_failure(self, card: AnyCard) -> bool:
        return any(map(self.is_failed_result, self.own_parts(card) or ()))

    def split_messages(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Yield the messages in the form in which they are sent. Layers and queries also become parts."""
        return map(self._split_message, speakers.demote_late_layers(messages))

    def _split_message(self, message: Message) -> Message:
        if isinstance(message.body["content"], list):
            return message
        parts = self.make({"role": message.body["role"], "content": message.body["content"]})
        return msgspec.structs.replace(message, body={**message.body, "content": parts})

    def system_parts(self, request: Request) -> list[Part]:
        return [
            part
            for message in self.split_messages(request.messages)
            if message.body["role"] == "system"
            for part in message.body["content"]
        ]

    def merged(self, messages: Iterable[Message]) -> Iterator[tuple[str, list[Part]]]:
        """Yield the role and the parts of each sent message, joined from adjacent messages of one role."""
        for run in speakers.runs(message for message in messages if message.body["role"] != "system"):
            role = run[0].body["role"]
            parts = [part for message in run for part in message.body["content"]]
            if role == "user" and len(run) > 1:
                parts.sort(key=lambda part: self.answered(part) is None)
            if parts:
                yield role, parts

    def sent_messages(self, request: Request) -> Iterator[SentMessage]:
        made = list(self.split_messages(request.messages))
        system = (place for place, message in enumerate(made) if message.body["role"] == "system")
        for number, place in enumerate(system, 1):
            yield SentMessage("system", number, made[place].body, [place])
        places = (place for place, message in enumerate(made) if message.body["role"] != "system")
        others = (message for message in made if message.body["role"] != "system")
        for number, run in enumerate(speakers.runs(others), 1):
            pieces = [(message.body, [next(places)]) for message in run]
            if run[0].body["role"] == "user" and len(run) > 1:
                pieces.sort(key=lambda piece: not any(map(self.answered, piece[0]["content"])))
            yield from (SentMessage("messages", number, *piece) for piece in pieces)

    def losses_in_request(self, request: Request) -> Iterator[tuple[str | None, str]]:
        """Yield a loss for each system text after another message, because it is moved to the top."""
        placed = speakers.demote_late_layers(request.messages)
        behind = dropwhile(lambda message: message.body["role"] == "system", placed)
        yield from speakers.moved_texts(request, (each for each in behind if each.body["role"] == "system"))

    def losses_to_chat(self, card: Card) -> Iterator[str]:
        parts = self.own_parts(card)
        if parts is None:
            return
        if card.type == REASONING:
            yield "thinking is left out"
        elif card.type == ASIDE:
            yield f"parts that only {self.parts_title} knows are left out"
        else:
            for part in parts:
                yield from self.losses_of_part(part)

    def losses_from_chat(self, card: Card) -> Iterator[str]:
        if self.own_parts(card) is not None or card.type in OF_ONE_FORMAT:
            return  # sent unchanged, or not in the chat form
        body = self.chat_body(card)
        is_result = body["role"] in ("tool", "function")
        # The name that cbx adds to every result is not a loss, because the call has the same name.
        is_said = self.names_results or not (sources.is_named_result(card) and card.tool_call_id)
        own = ("name",) * (is_result and is_said) + ("refusal",) * self.has_refusals
        yield from unsent_of_message(body, own)
        if any(not self.sends_other_call(call) for call in other_calls(body.get("tool_calls"))):
            yield "a tool call that is not a function's is sent as text"
        if self._is_sent_as_text(card, body):
            yield lost_result(card)
        for part in list_at(body, "content"):
            yield from self._losses_of_chat_part(body["role"], part)

    def _losses_of_chat_part(self, role: str, part: Any) -> Iterator[str]:
        yield from unsent_keys(part)
        if is_text(part):
            return
        made = self.make({"role": role, "content": [part]})
        if not any(map(self.chat_files, made)):
            yield f"a part of type {kind(part)!r} is sent as text"
            return
        file = file_of(part)
        if file is not None and file[2] is not None and file[2] not in str(made):
            yield "the name of a file is not sent"
        if not self.has_detail:
            yield from unsent_detail(part)


def text_parts(
    body: Body, make_file: Callable[[Any], Part | None], make_call: Callable[[Any, dict[str, Any]], Part]
) -> list[Part]:
    """Convert a message other than a tool message from the chat form to parts. Text becomes `{"text": …}`.

    `make_file` converts a part that is not text, or returns None if the format has no such part. `make_call`
    converts a tool call. Its second argument is the called function.
    """
    content, parts = body.get("content") or "", list[Part]()
    if isinstance(content, str):
        parts += [{"text": content}] if content.strip() else []
        content = []
    for part in content if isinstance(content, list) else [text_part(content)]:
        if not is_text(part):
            name = f"[{kind(part)}]" if kind(part) else _json(part)
            parts.append(make_file(part) or {"text": text_at(part, "refusal") or name})
        elif part["text"].strip():
            parts.append({"text": part["text"]})
    refusal = text_at(body, "refusal") or ""
    parts += [{"text": refusal}] if refusal.strip() else []
    for call in list_at(body, "tool_calls"):
        function = called_function(call)
        call_part = {"text": f"[tool call: {_json(call)}]"} if function is None else make_call(call, function)
        parts.append(call_part)
    old = body.get("function_call")
    return [*parts, {"text": f"[call of {_json(old)}]"}] if old else parts


def _json(value: Any) -> str:
    return exact_json.encode(value).decode()


def _sayable(role: str, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the parts that a role can send in the chat form. Users can send files, assistants refusals."""
    is_refused = role == "assistant" and any(kind(part) == "refusal" for part in parts)
    return parts if role == "user" or is_refused else []


# --- messages and the system prompt in files


class PartsFiles(MessageFiles):
    """A reader and writer of files whose messages are lists of parts.

    `parts_key` is the key of a message's parts. `assistant` is the format's name of that role. If `alone_key`
    is set, one message may replace the list under this key, and one part may replace the list of parts.
    """

    provider: PartsProvider
    checks_roles = True
    parts_key: str
    assistant = "assistant"
    alone_key = ""

    def system_value(self, parts: list[Part]) -> Any:
        return parts

    def system_parts(self, value: Any) -> list[Part]:
        return list_of(value)

    def _envelope_of(self, role: str) -> Body:
        """Return a message of this role without parts or other keys."""
        return {"role": self.assistant if role == "assistant" else role, self.parts_key: []}

    def keep_around(self, message: Body, role: str, cards: list[CardDraft]) -> list[CardDraft]:
        """Return the cards of a message. The first card stores any unusual keys next to the parts."""
        if message.get(self.parts_key) and self.empty_parts(message) == self._envelope_of(role):
            return cards
        return [keep(cards[0], self.provider.format, source_message=self.empty_parts(message)), *cards[1:]]

    def empty_parts(self, message: Body) -> Body:
        """Return a message with `[]` instead of its list of parts, or `{}` instead of a single part."""
        parts = message.get(self.parts_key)
        if isinstance(parts, list):
            return {**message, self.parts_key: []}
        return {**message, self.parts_key: {}} if self.alone_key and isinstance(parts, dict) else message

    def draft_system(self, key: str, value: Any) -> CardDraft:
        parts = self.system_parts(value)
        card = imported_card(RENDERED_PROMPT, "\n".join(filter(None, map(self.provider.words, parts))))
        standard = self.provider.parts_of(card)
        if standard and same_json({key: value}, {self.system_keys[0]: self.system_value(standard)}):
            return card
        return keep(card, self.provider.format, source_message={key: value}, source_blocks=parts)

    def keep_original(self, changed: CardDraft, original: CardDraft) -> CardDraft:
        return keep(changed, self.provider.format, source_blocks=self.provider.parts_of(original))

    def export(self, cards: Iterable[Card]) -> tuple[Body, Iterator[Body]]:
        system = (card for card in cards if speakers.role_of(card) == "system")
        prompts = [card for card in system if never_a_message(card) is None]
        others = (card for card in answering(cards) if speakers.role_of(card) != "system")
        messages = (card for card in others if never_a_message(card) is None)
        runs = speakers.gather(messages, lambda each: self._around(each) is not None)
        return self._system(prompts), filter(None, map(self._message, runs))

    def _system(self, prompts: Sequence[Card]) -> Body:
        if not prompts:
            return {}
        if len(prompts) == 1 and (envelope := self._around(prompts[0])) is not None:
            return envelope
        parts = [part for card in prompts for part in self.provider.parts_of(card)]
        return {self.system_keys[0]: self.system_value(parts)} if parts else {}

    def _message(self, cards: Sequence[Card]) -> Body | None:
        parts = [part for card in cards for part in self.provider.parts_of(card)]
        around = self._around(cards[0])
        if around is not None and self.alone_key and self.alone_key in around:
            return {self.alone_key: self._filled(around[self.alone_key], parts)}
        if around is not None:
            return self._filled(around, parts)
        if not parts and isinstance(self.provider.encode(cards[0]), NoMessage):
            return None
        return {**self._envelope_of(speakers.role_of(cards[0])), self.parts_key: parts}

    def _filled(self, around: Body, parts: list[Part]) -> Body:
        place = around.get(self.parts_key)
        if place == {} and self.alone_key and len(parts) == 1:
            return {**around, self.parts_key: parts[0]}
        is_place = place == [] or (place == {} and self.alone_key)
        return {**around, self.parts_key: parts} if is_place else around

    def _around(self, card: Card) -> Body | None:
        return sources.envelope(card, self.provider.format, sources.MESSAGE)


# --- answers of models


class PartsAnswers(AnswerReader):
    """A reader of answers in such a format, like imported messages. `parts_key` is the key of the parts."""

    provider: PartsProvider
    parts_key: str

    @abstractmethod
    def is_call(self, part: Part) -> bool:
        """Return whether a part is a call of a client's tool, even a malformed one."""

    @abstractmethod
    def call_id(self, part: Part) -> Any: ...

    @abstractmethod
    def replace_id(self, part: Part, call_id: str) -> Part: ...

    def parts(self, message: Body) -> Any:
        return message.get(self.parts_key)

    def draft(self, message: Body, own_ids: OwnIds) -> list[CardDraft]:
        """Return the cards of a message. They store all that the next request needs, such as signatures."""
        parts = message.get(self.parts_key) or []
        if not isinstance(parts, list):
            raise MalformedAnswer(f"the {self.parts_key!r} of the answer is not a list")
        places = [place for place, part in enumerate(parts) if self.is_call(part)]
        original_ids = [self.call_id(parts[place]) for place in places]
        ids = own_ids([each if isinstance(each, str) else "" for each in original_ids])
        renamed = list(parts)
        for place, call_id in zip(places, ids, strict=True):
            renamed[place] = self.replace_id(parts[place], call_id)
            if called_function(self.provider.call(renamed[place])) is None:
                what = "is not a call of a function: it needs a name, and arguments"
                raise MalformedAnswer(f"{self.parts_key}[{place}] {what}")
        return self.provider.draft_parts("assistant", renamed)
