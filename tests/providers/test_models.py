"""Facts about models: those that ship, each with its source, and those of a file of the user's."""

import tomllib
from datetime import date
from importlib.resources import files
from pathlib import Path

import pytest

from cardbox_cli.context.provider import UNKNOWN_MODEL
from cardbox_cli.model.tokens import ESTIMATING_TOKENIZER
from cardbox_cli.providers.models import facts_of, provider_of_model, window
from cardbox_cli.providers.registry import PROVIDERS
from tests.conftest import Cbx

SHIPPED = tomllib.loads(files("cardbox_cli.providers").joinpath("models.toml").read_text())
OWN = """\
[[provider]]
name = "gemini"
models = ["house-*"]

[[model]]
names = ["house-large"]
source = "the team that runs it"
date = 2026-11-20
window = 900
reasoning = "never"

[[model]]
names = ["gpt-4o"]
source = "a contract"
date = 2026-11-20
window = 64_000
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "models.toml"
    file.write_text(OWN)
    monkeypatch.setenv("CBX_MODELS", str(file))
    return file


def test_every_entry_has_a_source_and_a_date() -> None:
    assert len(SHIPPED["model"]) > 20
    for entry in SHIPPED["model"]:
        assert entry["source"].strip(), entry["names"]
        assert isinstance(entry["date"], date), entry["names"]
        assert len(entry) > 3, f"{entry['names']} has no fact"
    assert {each["name"] for each in SHIPPED["provider"]} <= PROVIDERS.keys()


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("gpt-4o", 128_000),
        ("gpt-4o-2024-08-06", 128_000),
        ("azure/gpt-4o", 128_000),
        ("us.anthropic.claude-3-5-sonnet-20241022-v2:0", 200_000),
        ("anthropic/claude-3.5-sonnet", 200_000),
    ],
)
def test_gateway_and_snapshot_names_keep_the_facts_of_the_model(model: str, tokens: int) -> None:
    assert window(model) == tokens


@pytest.mark.parametrize("model", ["gpt-9", "claude-opus-9-9", "my-own", "", None])
def test_an_unknown_model_has_no_facts(model: str | None) -> None:
    assert facts_of(model) is UNKNOWN_MODEL
    assert facts_of(model).counter is ESTIMATING_TOKENIZER


class TestUserModelFile:
    def test_a_user_file_adds_models_and_overrides_facts(self, own: Path) -> None:
        assert (provider_of_model("house-large"), facts_of("house-large").reasoning) == ("gemini", "never")
        assert (window("house-large"), window("gpt-4o"), window("gpt-4o-mini")) == (900, 64_000, 128_000)
        # What it does not say of a model holds as it was.
        assert facts_of("gpt-4o").max_output == 16_384

    def test_declared_models_are_linted(self, cbx: Cbx, own: Path, tmp_path: Path) -> None:
        chat = tmp_path / "chat.json"
        chat.write_text(
            '{"model": "house-large", "messages": [{"role": "user", "content": "%s"}]}' % ("word " * 2000)
        )
        found = cbx("card", "lint", str(chat), "--format", "openai")
        assert (found.code, "over-limit" in found.out, "unknown" in found.err) == (8, True, False)

    def test_an_undeclared_model_is_reported(self, cbx: Cbx, own: Path, tmp_path: Path) -> None:
        chat = tmp_path / "chat.json"
        chat.write_text('{"model": "barn-large", "messages": [{"role": "user", "content": "Hi"}]}')
        note = "note: unknown model 'barn-large': nothing is checked that depends on the model; CBX_MODELS can declare it"
        found = cbx("card", "lint", str(chat))
        assert (found.code, note in found.err.splitlines()) == (0, True)
        # A host has models that nobody can list.
        assert "unknown" not in cbx("card", "lint", str(chat), "--provider", "openai-compatible").err
        box = cbx("card", "import", str(chat), "-o", "id").out.strip()
        assert note in cbx("render", "--box", box, "--model", "barn-large", "--check").err
        assert "unknown" not in cbx("render", "--box", box, "--model", "barn-large").err

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            (
                "[[model]]\nnames = ['a']\nsource = 's'\ndate = 2026-01-01\nwindow = 'big'",
                "model 1 (a), window: expected",
            ),
            (
                "[[model]]\nnames = ['a']\ndate = 2026-01-01\nwindow = 1",
                "model 1 (a): object missing required field",
            ),
            (
                "[[model]]\nnames = ['a']\nsource = 's'\ndate = 2026-01-01\nwidth = 1",
                "model 1 (a): object contains unknown field `width`",
            ),
            ("[[models]]\nnames = []", "object contains unknown field `models`"),
            ("[[model]", "at line 1"),
        ],
    )
    def test_an_error_names_the_file_entry_and_key(
        self, text: str, problem: str, cbx: Cbx, own: Path, tmp_path: Path
    ) -> None:
        own.write_text(text)
        chat = tmp_path / "chat.json"
        chat.write_text('{"model": "a", "messages": [{"role": "user", "content": "Hi"}]}')
        refused = cbx("card", "lint", str(chat), "-o", "json")
        assert refused.code == 4
        assert refused.error["message"].startswith(str(own))
        assert problem in refused.error["message"]

    def test_a_missing_file_is_refused(self, cbx: Cbx, own: Path, tmp_path: Path) -> None:
        own.unlink()
        chat = tmp_path / "chat.json"
        chat.write_text('{"model": "a", "messages": [{"role": "user", "content": "Hi"}]}')
        refused = cbx("card", "lint", str(chat))
        assert (refused.code, f"cannot read '{own}', which CBX_MODELS names" in refused.err) == (4, True)

    def test_an_unknown_provider_is_refused(self, cbx: Cbx, own: Path, tmp_path: Path) -> None:
        own.write_text('[[provider]]\nname = "barn"\nmodels = ["barn-*"]\n')
        chat = tmp_path / "chat.json"
        chat.write_text('{"model": "barn-1", "messages": [{"role": "user", "content": "Hi"}]}')
        refused = cbx("card", "lint", str(chat))
        assert (refused.code, "unknown provider 'barn' for the model 'barn-1'" in refused.err) == (4, True)
