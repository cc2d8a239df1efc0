"""Where recipes are found and how they are read.

A name stands for a file in one of the caller's folders, or else for a recipe that ships; whatever has a
slash or ends in .yaml or .yml is a path. Owns finding, reading and listing. What a recipe may say is
`model.recipes`, which is loaded, with pydantic, only when one is read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cardbox_cli.errors import InvalidRecipe, NotFound
from cardbox_cli.files import open_to_read
from cardbox_cli.model.handwritten.documents import Document, Problem, document_of, refusal
from cardbox_cli.model.handwritten.yaml_files import MAX_BYTES, read_yaml, text_of
from cardbox_cli.settings import HANDOVERS
from cardbox_cli.shipped import shipped
from cardbox_cli.text import did_you_mean

if TYPE_CHECKING:
    from cardbox_cli.model.handwritten.recipes import Recipe

_ENDINGS = (".yaml", ".yml")
# In the current folder.
OWN_FOLDER = Path("handovers")


@dataclass(frozen=True, slots=True)
class LoadedRecipe:
    """A recipe, its name, the file it came from, or None, and the text as it was written."""

    recipe: "Recipe"
    name: str
    source: Path | None
    text: str


@dataclass(frozen=True, slots=True)
class ListedRecipe:
    """A recipe that can be used by its name. `problem` is the first line of the error if it is broken."""

    name: str
    description: str
    source: Path
    shipped: bool
    problem: str | None = None


def recipe_folders() -> list[Path]:
    """The folders in which recipes are found by name, before those that ship."""
    return [OWN_FOLDER, *([Path(named)] if (named := HANDOVERS.text()) else [])]


def read_recipe(name_or_path: str, *, folders: Sequence[Path]) -> LoadedRecipe:
    """Find and read a recipe; of several that of the first folder. Raises NotFound, InvalidRecipe."""
    path = Path(name_or_path) if _is_path(name_or_path) else _named(name_or_path, folders)
    text = _text(path)
    return LoadedRecipe(parse_recipe(text, str(path)), name=path.stem, source=path, text=text)


def parse_recipe(text: str, source: str) -> "Recipe":
    """The recipe in `text`; `source` names it in errors. Raises InvalidRecipe with all that is wrong."""
    return _recipe(read_yaml(text, source))


def recipe_from_mapping(mapping: Mapping[str, object]) -> "Recipe":
    """The recipe that a Python caller made as a mapping. Raises InvalidRecipe with all that is wrong."""
    return _recipe(document_of(mapping, "handover"))


def list_recipes(folders: Sequence[Path]) -> list[ListedRecipe]:
    """The recipes that can be used by name, sorted by it: those of `folders`, and those that ship."""
    return [_listed(name, path) for name, path in recipe_files(folders).items()]


def recipe_files(folders: Sequence[Path]) -> dict[str, Path]:
    """The files of recipes by name, sorted; an earlier folder hides a later one, what ships comes last."""
    known: dict[str, Path] = {}
    for folder in [*folders, shipped("handovers")]:
        for path in sorted(folder.glob("*.y*ml")):
            if path.suffix in _ENDINGS:
                known.setdefault(path.stem, path)
    return dict(sorted(known.items()))


def _recipe(document: Document) -> "Recipe":
    from cardbox_cli.model.handwritten.recipes import Recipe
    from cardbox_cli.model.handwritten.validation import fit

    hint = "`cbx handover schema` prints what a recipe may say"
    return fit(Recipe, document, refuse_with=InvalidRecipe, hint=hint)


def _is_path(name_or_path: str) -> bool:
    return "/" in name_or_path or name_or_path.endswith((*_ENDINGS, ".json"))


def _named(name: str, folders: Sequence[Path]) -> Path:
    known = recipe_files(folders)
    if name in known:
        return known[name]
    raise NotFound(
        f"no handover recipe is named {name!r}{did_you_mean(name, known)}",
        hint=f"there are {', '.join(known)}; a file is named by its path, such as ./{name}.yaml",
        details={"name": name, "known": list(known)},
    )


def _text(path: Path) -> str:
    try:
        with open_to_read(path) as file:
            data = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"no such recipe file: {path}",
            hint="`cbx handover list` shows the recipes that can be used by name",
            details={"file": str(path)},
        ) from None
    except OSError as exc:
        problem = Problem((), f"cannot be read: {exc.strerror}")
        raise refusal(InvalidRecipe, str(path), [problem]) from exc
    return text_of(data, str(path), refuse_with=InvalidRecipe)


def _listed(name: str, path: Path) -> ListedRecipe:
    ships = path.parent.resolve() == shipped("handovers").resolve()
    try:
        recipe = parse_recipe(_text(path), str(path))
    except (InvalidRecipe, NotFound) as error:
        return ListedRecipe(name, "", path, ships, problem=error.message.splitlines()[0])
    return ListedRecipe(name, recipe.description, path, ships)
