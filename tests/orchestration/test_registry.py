"""Finding handlers: those of cbx, those of packages, and packages that are broken."""

from pathlib import Path

import pytest

from cardbox_cli.errors import InvalidInput, NotFound
from cardbox_cli.execution.handlers import Handlers
from cardbox_cli.orchestration.handlers import own_handlers

MODULE = """
from cardbox_cli.execution.handlers import Handler
SCHEMA = {"type": "object", "properties": {"b": {}, "aa": {}}}
good = Handler(name="good", description="Good.", parameters=SCHEMA, function=lambda runtime, caller, arguments: 1)
renamed = good
odd_schema = Handler(name="odd_schema", description="", parameters={"type": "array"}, function=print)
no_handler = print
no_function = Handler(name="no_function", description="", parameters=SCHEMA, function="print")
no_json = Handler(name="no_json", description="", parameters={**SCHEMA, "required": {1}}, function=print)
unfit = Handler(name="unfit", description="", parameters=SCHEMA, function=print, fitted=lambda asked: asked[99])
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package whose handlers are good and bad."""
    (tmp_path / "some_handlers.py").write_text(MODULE)
    info = tmp_path / "some_handlers-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-handlers\nVersion: 1\n")
    (tmp_path / "leaving_handlers.py").write_text("raise SystemExit('bye')")
    names = ["good", "renamed", "odd_schema", "no_handler", "absent", "ask_expert"]
    names += ["no_function", "no_json", "unfit"]
    lines = [*(f"{name} = some_handlers:{name}" for name in names), "leaving = leaving_handlers:leaving"]
    (info / "entry_points.txt").write_text("\n".join(["[cardbox_cli.handlers]", *lines]))
    monkeypatch.syspath_prepend(tmp_path)


@pytest.fixture
def handlers() -> Handlers:
    """All handlers, looked for again."""
    return Handlers(own_handlers)


@pytest.mark.usefixtures("package")
def test_a_handler_of_a_package_is_found(handlers: Handlers) -> None:
    [tool] = handlers.tools(["good"])
    assert (tool.tool_name, tool.description) == ("good", "Good.")
    assert list(tool.parameters["properties"]) == ["b", "aa"]
    assert "good" in handlers.names


@pytest.mark.usefixtures("package")
def test_built_in_handlers_cannot_be_replaced(handlers: Handlers) -> None:
    assert handlers.find("ask_expert").function.__module__.startswith("cardbox_cli.")


@pytest.mark.usefixtures("package")
def test_a_handler_that_cannot_adapt_to_the_request_is_not_offered(handlers: Handlers) -> None:
    assert handlers.tools(["unfit", "good"]) == handlers.tools(["good"])


@pytest.mark.usefixtures("package")
def test_a_handler_in_a_module_that_exits_is_broken(handlers: Handlers) -> None:
    with pytest.raises(
        InvalidInput, match="the handler 'leaving' of 'leaving_handlers:leaving' cannot be used: bye"
    ):
        handlers.find("leaving")


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("renamed", "its name is 'good'"),
        ("odd_schema", "its parameters are not a JSON Schema of type object"),
        ("no_handler", "it is not a Handler but a builtin_function_or_method"),
        ("absent", "has no attribute 'absent'"),
        ("no_function", "its function is not callable but a str"),
        ("no_json", "its description and parameters[1].required: is a set, which is not a JSON value"),
    ],
)
def test_a_broken_handler_is_not_offered_and_its_error_is_reported(
    name: str, why: str, handlers: Handlers
) -> None:
    assert handlers.tools([name, "good"]) == handlers.tools(["good"])
    with pytest.raises(InvalidInput) as caught:
        handlers.find(name)
    assert caught.value.message.startswith(f"the handler {name!r} of 'some_handlers:{name}' cannot be used: ")
    assert why in caught.value.message


def test_the_error_for_an_unknown_handler_lists_the_known_ones(handlers: Handlers) -> None:
    with pytest.raises(
        NotFound, match="unknown handler 'delegate_asinc'; did you mean 'delegate_async'"
    ) as caught:
        handlers.find("delegate_asinc")
    assert "ask_expert" in (caught.value.hint or "")


@pytest.mark.usefixtures("package")
def test_package_handlers_work_without_the_built_in_ones() -> None:
    alone = Handlers()
    assert alone.find("good").name == "good"
    with pytest.raises(NotFound, match="unknown handler 'delegate_async'"):
        alone.find("delegate_async")
    assert alone.warnings(["delegate_async", "good", "god"]) == [
        "no handler 'god' is installed here; did you mean 'good'?"
    ]
