"""Which layers a request gets: who asks for them, which may be shared, and what they say."""

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from cardbox_cli.context.composer import ContextCollector
from cardbox_cli.context.explain import explain
from cardbox_cli.context.request import ComposeOptions, Request, request_box_ids, request_cards, request_of
from cardbox_cli.errors import InvalidInput
from cardbox_cli.model.cards import Card, draft_as_card
from cardbox_cli.model.content import JsonContent, TextContent
from cardbox_cli.model.layers import PROCESS_NAMES, LayerRequest, ProcessName
from cardbox_cli.providers.registry import provider_named
from tests.context.lint.cards import places, result, system, thought, user
from tests.context.test_request import CALL, card

anthropic, openai = provider_named("anthropic"), provider_named("openai")


class Providers:
    """Answers from a list, and remembers what it was asked."""

    def __init__(self, *texts: str) -> None:
        self.asked: list[tuple[str, str, int]] = []
        self._cards = [card("task.deliverable", TextContent(text), card_id=text) for text in texts]

    refusal: ClassVar[str | None] = None

    def knowledge(self, query: str, limit: int, boxes: Sequence[str]) -> Sequence[Card]:
        self.asked.append(("knowledge", query, limit))
        return self._cards[:limit]

    def experience(self, profile_box_id: str, limit: int) -> Sequence[Card]:
        self.asked.append(("experience", profile_box_id, limit))
        return self._cards[:limit]


def profile(**keys: Any) -> Card:
    return card("sys.profile", JsonContent({"name": "x", **keys}), "system")


TODO = card("todo.item", JsonContent({"text": "look", "done": False}), "system")
DONE = card("todo.item", JsonContent({"text": "ask", "done": True}), "system")
SUMMARY = system("earlier: hello", "context.compression")
OWN = (profile(), TODO, DONE, SUMMARY, user("hi"))


def composed(*cards: Card, providers: Providers | None = None, **options: Any) -> Request:
    found = providers or Providers()
    asked = LayerRequest(
        **{name: options.pop(name) for name in ("texts", "to_collect", "knowledge") if name in options}
    )
    collector = ContextCollector(knowledge=found, experience=found)
    return request_of(
        places(*cards), ComposeOptions(asked=asked, **options), encode=openai.encode, collector=collector
    )


def texts(request: Request) -> dict[str, str]:
    return {layer.name: layer.text for layer in request.layers}


def reasons(request: Request) -> dict[str, str]:
    return {left.layer: left.reason for left in request.layers_left_out}


def test_boxes_add_their_todo_list_and_summaries_as_layers() -> None:
    request = composed(*OWN, system("and more", "context.compression"))
    assert texts(request) == {
        "todo__context": "Todo list:\n- [ ] look\n- [x] ask",
        "compression__context": "earlier: hello\n\nand more",
    }
    assert {layer.name: layer.card_ids for layer in request.layers}["todo__context"] == ["k1", "k2"]
    assert [message.body["content"] for message in request.messages][-1] == "hi"


def test_layers_are_collected_only_on_request() -> None:
    providers = Providers("a")
    assert composed(*OWN, providers=providers).messages
    assert providers.asked == []


def test_requested_layers_are_collected() -> None:
    providers = Providers("seen before")
    to_collect = frozenset({"experience__context"})
    request = composed(profile(), providers=providers, to_collect=to_collect, knowledge="rate limit")
    assert providers.asked == [("experience", "b", 6), ("knowledge", "rate limit", 6)]
    assert list(texts(request)) == ["experience__context", "knowledge__context"]
    assert all("seen before" in text for text in texts(request).values())
    assert [layer.card_ids for layer in request.layers] == [["seen before"]] * 2


def test_cards_of_the_request_are_not_found_as_knowledge() -> None:
    providers = Providers("k1", "a", "b", "c", "d", "e", "f")
    request = composed(profile(), user("hi"), providers=providers, knowledge="words")
    assert [layer.card_ids for layer in request.layers] == [["a", "b", "c", "d", "e"]]


def test_an_empty_search_result_is_reported() -> None:
    assert reasons(composed(knowledge="words")) == {"knowledge__context": "nothing was found"}


def test_a_given_text_replaces_the_collected_layer() -> None:
    providers = Providers("a")
    given = dict.fromkeys(("todo__context", "compression__context", "experience__context"), "given")
    assert texts(composed(*OWN, providers=providers, texts=given)) == given
    assert providers.asked == []


@pytest.mark.parametrize("name", ["todo", "todo_context", "__context"])
def test_a_layer_name_without_the_suffix_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="is not a layer"):
        composed(texts={name: "x"})


class TestLayerSharing:
    @pytest.mark.parametrize(
        ("share", "process", "shared"),
        [
            (None, "react", True),
            (None, "sequential", True),
            (True, "dynamic", True),
            (False, "react", False),
            (False, "hierarchical", False),
        ],
    )
    def test_the_share_option_overrides_the_default_of_the_process(
        self, share: bool | None, process: ProcessName, shared: bool
    ) -> None:
        framework = {"framework__context": "rules"}
        request = composed(*OWN, share=share, process=process, texts=framework)
        assert texts(request).keys() == (
            {"framework__context", "todo__context", "compression__context"} if shared else framework.keys()
        )
        left = {"todo__context": "layers are not shared", "compression__context": "layers are not shared"}
        assert reasons(request) == ({} if shared else left)

    def test_a_requested_layer_is_included_without_sharing(self) -> None:
        request = composed(*OWN, share=False, to_collect=frozenset({"todo__context"}))
        assert texts(request).keys() == {"todo__context"}

    @pytest.mark.parametrize(("share", "taken"), [(None, True), (True, True), (False, False)])
    def test_the_share_option_overrides_the_profile(self, share: bool | None, taken: bool) -> None:
        asking = profile(layers={"experience__context": True, "notes__context": "n"})
        providers = Providers("a")
        request = composed(asking, providers=providers, share=share)
        assert ("experience__context" in texts(request)) is ("notes__context" in texts(request)) is taken
        assert bool(providers.asked) is taken


class TestProcesses:
    @pytest.mark.parametrize("process", PROCESS_NAMES)
    def test_every_process_except_mapreduce_takes_history_and_shared_layers(
        self, process: ProcessName
    ) -> None:
        request = composed(*OWN, thought(text="Hm."), process=process, query="q")
        has_history = not process.startswith("mapreduce")
        layers = [message.layer for message in request.messages]
        cards = {message.card_id for message in request.messages}
        assert ("k4" in cards, "k5" in cards, "todo__context" in layers) == (True, has_history, has_history)
        assert layers[-1] == "query"
        told = {f"history, and a {process} takes none"}
        assert {left.reason for left in request.left_out if left.card_id == "k5"} == (
            set() if has_history else told
        )

    @pytest.mark.parametrize(
        ("process", "may"),
        [
            ("mapreduce_worker", {"framework__context", "knowledge__context"}),
            ("mapreduce_planner", {"framework__context", "knowledge__context", "experience__context"}),
            ("mapreduce_reducer", {"framework__context", "knowledge__context", "experience__context"}),
        ],
    )
    @pytest.mark.parametrize("share", [None, True, False])
    def test_a_layer_that_the_process_cannot_have_is_refused(
        self, process: ProcessName, may: set[str], share: bool | None
    ) -> None:
        for name in ("framework", "experience", "knowledge", "todo", "compression", "notes"):
            given = {f"{name}__context": "x"}
            if given.keys() <= may:
                assert texts(composed(process=process, share=share, texts=given)) == given
            else:
                with pytest.raises(InvalidInput, match=f"process {process} cannot have"):
                    composed(process=process, share=share, texts=given)

    def test_forbidden_layers_from_boxes_or_the_profile_are_left_out(self) -> None:
        asking = profile(process="mapreduce_worker", layers={"experience__context": "e"})
        request = composed(asking, TODO, share=True)
        assert request.process == "mapreduce_worker"
        assert reasons(request) == dict.fromkeys(
            ("experience__context", "todo__context"), "the process mapreduce_worker cannot have it"
        )

    def test_invalid_values_in_a_foreign_profile_are_ignored(self) -> None:
        strange = profile(process=["x"], layers=["experience__context"], layout=7)
        request = composed(strange, user("hi"))
        assert (request.process, request.layout, request.layers) == ("react", "default", [])
        assert composed(profile(layers={"a__context": 1, "b": "x", "knowledge__context": {}})).layers == []


@pytest.mark.parametrize("metadata", [{}, {"layer": "notes"}, {"layer": 7}, {"layer": "__context"}])
def test_a_layer_card_without_a_valid_name_makes_no_layer(metadata: dict[str, Any]) -> None:
    request = composed(card("context.layer", TextContent("t"), "system", metadata=metadata), user("hi"))
    assert (request.layers, request.layers_left_out) == ([], [])
    assert [message.body["content"] for message in request.messages] == ["hi"]


def test_the_first_valid_profile_card_is_used() -> None:
    said = {"system_prompt": "Be kind.", "llm_config": {"model": "m"}}
    request = composed(card("sys.profile", TextContent("x"), "system"), profile(**said), user("hi"))
    assert (request.model, request.profile_id) == ("m", "k1")
    assert [line.made_of for line in explain(request, openai).messages] == [["k1"], []]


class TestCacheLayout:
    HISTORY = (user("hi"), thought(CALL, text="look"), result(text="ok"))
    NOTES: ClassVar = {"todo__context": "do", "framework__context": "rules"}

    def test_layers_that_change_with_each_call_come_before_the_query(self) -> None:
        body = openai.body(composed(*self.HISTORY, layout="cache", texts=self.NOTES, query="go on"))
        assert [message["content"] for message in body["messages"]] == [
            "rules",
            "hi",
            "look",
            "ok",
            "do",
            "go on",
        ]

    def test_anthropic_gets_the_layer_as_user_text_after_the_results(self) -> None:
        request = request_of(
            places(*self.HISTORY),
            ComposeOptions(layout="cache", asked=LayerRequest(texts=self.NOTES)),
            encode=anthropic.encode,
        )
        body = anthropic.body(request)
        assert body["system"] == "rules"
        assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
        assert [block["type"] for block in body["messages"][-1]["content"]] == ["tool_result", "text"]
        assert body["messages"][-1]["content"][-1]["text"] == "do"

    def test_the_profile_can_select_the_cache_layout(self) -> None:
        request = composed(profile(layout="cache"), *self.HISTORY, texts=self.NOTES)
        assert [message.layer for message in request.messages][-1] == "todo__context"


class TestStoredRequest:
    """The request box of a step, and the request that it makes again."""

    def restored(self, request: Request, *, reproducible: Sequence[str] = ()) -> Request:
        cards = [
            draft_as_card(draft, "p") for draft in request_cards("p", request, reproducible=reproducible)
        ]
        history = list(request.places.values())
        by_id = {each.card_id: each for each in cards} | {
            card_id: place.slot.card for card_id, place in request.places.items() if place.slot.card
        }
        ids = request_box_ids(request_cards("p", request, reproducible=reproducible), history)
        stored = [by_id[card_id] for card_id in ids if by_id[card_id].type != "sys.profile"]
        return composed(*stored)

    def test_a_restored_request_has_each_summary_once(self) -> None:
        request = composed(*OWN)
        for reproducible in ([], ["compression__context", "todo__context"]):
            again = self.restored(request, reproducible=reproducible)
            assert texts(again) == texts(request)
            assert [message.body for message in again.messages] == [
                message.body for message in request.messages
            ]

    def test_only_reproducible_layers_are_stored(self) -> None:
        request = composed(
            *OWN, providers=Providers("seen"), knowledge="words", texts={"notes__context": "n"}
        )
        assert texts(self.restored(request)).keys() == {"todo__context", "compression__context"}
        kept = self.restored(request, reproducible=["knowledge__context"])
        assert texts(kept)["knowledge__context"] == texts(request)["knowledge__context"]
        assert "notes__context" not in texts(kept)

    def test_the_history_excludes_the_system_prompt_and_summaries(self) -> None:
        request = composed(*OWN, profile(system_prompt="Be kind."))
        history = [message for message in request.messages if message.layer == "checkpoint_messages"]
        assert [message.body for message in history] == [{"role": "user", "content": "hi"}]


def test_a_turn_without_history_keeps_its_own_exchange() -> None:
    entries = places(thought(text="long ago"), user("the task"), thought(CALL), result())
    request = request_of(
        entries,
        ComposeOptions(process="mapreduce_worker"),
        encode=openai.encode,
        own=frozenset({"k2", "k3"}),
    )
    assert [message.card_id for message in request.messages] == ["k1", "k2", "k3"]
