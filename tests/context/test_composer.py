"""The order of the layers, the one query, and that composing reaches for nothing."""

import builtins
import inspect
import os
import random
import secrets
import socket
import time
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardbox_cli.context.composer import add_missing_layers, compose
from cardbox_cli.context.messages import Message
from cardbox_cli.context.request import request_of
from cardbox_cli.errors import DuplicateQuery, InvalidInput
from cardbox_cli.model.layers import Layout
from cardbox_cli.providers.registry import providers
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from tests.context.lint.cards import places, user

CONTEXTS = {
    "zoo__context": "z",
    "todo__context": "t",
    "compression__context": "c",
    "experience__context": "e",
    "knowledge__context": "k",
    "framework__context": "f",
    "apple__context": "a",
    "empty__context": "",
}


def said(role: str, content: Any) -> Message:
    return Message(layer="checkpoint_messages", body={"role": role, "content": content})


def composed(*history: Message, query: str | None = None, **policy: Any) -> list[tuple[str, str]]:
    messages = compose(
        system_prompt="s", checkpoint_messages=history, contexts=CONTEXTS, query=query, **policy
    )
    return [(each.body["role"], each.body["content"]) for each in messages]


def words(*history: Message, **options: Any) -> str:
    return " ".join(content for _, content in composed(*history, **options))


@pytest.mark.parametrize(
    ("layout", "compression", "order"),
    [
        ("default", "before", "s f e k t c a z h q"),
        ("cache", "before", "s f c a z h e k t q"),
        ("default", "after", "s f e k t a z h c q"),
        ("cache", "after", "s f a z h e k t c q"),
    ],
)
def test_each_layout_has_a_fixed_layer_order(layout: Layout, compression: str, order: str) -> None:
    assert words(said("user", "h"), query="q", layout=layout, compression=compression) == order


def test_layers_have_the_system_role_and_the_query_the_user_role() -> None:
    roles = [role for role, _ in composed(said("assistant", "h"), query="q")]
    assert roles == ["system"] * 8 + ["assistant", "user"]


def test_empty_parts_add_no_messages() -> None:
    assert compose(system_prompt="", checkpoint_messages=[], contexts={"todo__context": ""}, query="") == []


@pytest.mark.parametrize("name", ["todo", "__context", "todo__Context"])
def test_a_layer_name_must_end_with_the_suffix(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"'{name}' is not a layer: names of layers end in '__context'"):
        compose(system_prompt=None, checkpoint_messages=[], contexts={name: "x"}, query=None)


class TestQuery:
    @pytest.mark.parametrize("content", ["go on", " go on\n", [{"type": "text", "text": "go on"}]])
    def test_a_query_that_repeats_the_last_user_message_is_refused(self, content: Any) -> None:
        with pytest.raises(DuplicateQuery, match="repeats the last user message") as caught:
            composed(said("user", content), query="go on")
        assert (caught.value.code, caught.value.exit_code) == ("duplicate-query", 4)

    def test_a_query_can_repeat_an_earlier_user_message(self) -> None:
        history = (said("user", "go on"), said("assistant", "done"))
        assert words(*history, query="go on").endswith("go on done go on")

    def test_a_query_can_repeat_the_last_assistant_message(self) -> None:
        assert words(said("assistant", "go on"), query="go on").endswith("go on go on")

    def test_a_restored_history_contains_the_query_once(self) -> None:
        history = (said("user", "go on"),)
        assert composed(*history) == composed(*history)
        assert words(*history).count("go on") == 1


def test_the_composer_takes_only_keyword_arguments() -> None:
    parameters = inspect.signature(compose).parameters
    named = {"system_prompt", "checkpoint_messages", "contexts", "query", "layout", "compression"}
    assert parameters.keys() == named
    assert {each.kind for each in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}


def test_composing_uses_no_network_clock_randomness_or_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("composing reached for the outside")

    entries = places(user("hi"))
    outside = [
        *((socket, name) for name in ("socket", "create_connection", "getaddrinfo")),
        *((time, name) for name in ("time", "time_ns", "monotonic", "perf_counter", "sleep")),
        *((random, name) for name in ("random", "randint", "choice", "getrandbits")),
        *((secrets, "token_hex"), (uuid, "uuid4"), (uuid, "uuid1"), (os, "urandom"), (os, "getenv")),
        *((builtins, "open"), (os, "open"), (Database, "value"), (Database, "rows"), (Database, "run")),
        *((CardStore, "__init__"), (CardStore, "get")),
    ]
    with monkeypatch.context() as patched:
        for owner, name in outside:
            patched.setattr(owner, name, refuse)
        bodies = [
            dialect.body(request_of(entries, encode=dialect.encode))
            for _ in range(2)
            for dialect in providers()
        ]
        messages = [composed(said("user", "h"), query="q") for _ in range(2)]
    assert bodies[: len(bodies) // 2] == bodies[len(bodies) // 2 :]
    assert messages[0] == messages[1]


@given(
    st.dictionaries(st.sampled_from([*CONTEXTS, "x__context"]), st.sampled_from(["", "x"])),
    st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.sampled_from("hi")), max_size=8),
    st.sampled_from([None, "", "h", "i"]),
    st.sampled_from(["default", "cache"]),
)
def test_each_layer_appears_once_and_the_history_is_unchanged(
    contexts: dict[str, str], spoken: list[tuple[str, str]], query: str | None, layout: Layout
) -> None:
    history = [said(role, text) for role, text in spoken]
    before = (dict(contexts), list(history))
    try:
        messages = compose(
            system_prompt=None, checkpoint_messages=history, contexts=contexts, query=query, layout=layout
        )
    except DuplicateQuery:
        assert spoken[-1][0] == "user"
        return
    layers = [each.layer for each in messages]
    assert [each for each in messages if each.layer == "checkpoint_messages"] == history
    assert {each for each in layers if each.endswith("__context")} == {n for n, t in contexts.items() if t}
    assert len(layers) == len(history) + sum(map(bool, contexts.values())) + bool(query)
    assert (contexts, history) == before


@pytest.mark.parametrize("layout", ["default", "cache"])
@pytest.mark.parametrize("has_history", [True, False])
@given(lacking=st.sets(st.sampled_from(sorted(CONTEXTS.keys() - {"empty__context"}))))
def test_layers_added_later_get_their_usual_positions(
    layout: Layout, has_history: bool, lacking: set[str]
) -> None:
    parts: dict[str, Any] = {
        "system_prompt": "s",
        "checkpoint_messages": [said("user", "h"), said("assistant", "i")] if has_history else [],
        "query": "q",
        "layout": layout,
    }
    there = {name: text for name, text in CONTEXTS.items() if name not in lacking}
    later = {name: CONTEXTS[name] for name in lacking}
    found = add_missing_layers(compose(contexts=there, **parts), later, layout)
    assert found == compose(contexts=CONTEXTS, **parts)
