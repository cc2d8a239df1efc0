"""Texts of the repository that the style rules are applied to, with the place of each.

An area is one list of exceptions: `messages` (errors, hints, notes), `help`, `docstrings` (comments included),
`names`, `docs`.
"""

import ast
import functools
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PACKAGE = "cardbox_cli"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

# A value that a text contains only at run time.
PLACEHOLDER = "X"

_ANNOUNCERS = {"announce", "note", "warn"}
_CLICK_ERRORS = {"UsageError", "BadParameter", "ClickException"}


@dataclass(frozen=True)
class Text:
    """A text and its place: the file, and what it belongs to there. No line number: exceptions outlive moves."""

    area: str
    path: str
    owner: str
    text: str


@dataclass(frozen=True)
class Module:
    """A module of the package, parsed."""

    path: str
    source: str
    tree: ast.Module


def tracked(*patterns: str) -> list[str]:
    """The files of the repository that match, those not yet committed included."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listing = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    return sorted(path for path in listing.split("\0") if path and (REPOSITORY / path).is_file())


@functools.cache
def modules() -> tuple[Module, ...]:
    """Every module of the package."""
    sources = ((path, (REPOSITORY / path).read_text()) for path in tracked(f"{PACKAGE}/*.py"))
    return tuple(Module(path, source, ast.parse(source)) for path, source in sources)


def literal(node: ast.AST | None) -> str | None:
    """The text of a string, a formatted string or a joined one; None for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(literal(part) or PLACEHOLDER for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            ends = literal(left), literal(right)
            return None if ends == (None, None) else "".join(end or PLACEHOLDER for end in ends)
    return None


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


@functools.cache
def error_names() -> frozenset[str]:
    """The names of every class that is an error: those of `errors.py`, click's, and their subclasses."""
    bases = {
        node.name: {
            base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in node.bases
        }
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    }
    known = {"CbxError", *_CLICK_ERRORS}
    while more := {name for name, above in bases.items() if above & known} - known:
        known |= more
    return frozenset(known)


def messages() -> Iterator[Text]:
    """Messages and hints of errors, and what is announced on stderr."""
    for module in modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and _called(node) in error_names() | _ANNOUNCERS:
                hints = (keyword.value for keyword in node.keywords if keyword.arg == "hint")
                for argument in [*node.args[:1], *hints]:
                    for text in _literals(argument):
                        yield Text("messages", module.path, _called(node), text)


def _literals(node: ast.AST) -> Iterator[str]:
    """The literals that an argument may be: both of a conditional expression."""
    if isinstance(node, ast.IfExp):
        yield from _literals(node.body)
        yield from _literals(node.orelse)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _literals(value)
    elif (text := literal(node)) is not None:
        yield text


def literals() -> Iterator[Text]:
    """Every string of the package that is not a docstring, formatted and joined ones as one text."""
    for module in modules():
        seen = {
            node.body[0].value
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(module.tree):
            if isinstance(node, ast.expr) and node not in seen and (text := literal(node)) is not None:
                seen.update(part for part in ast.walk(node) if isinstance(part, ast.expr))
                yield Text("literals", module.path, "literal", text)


# A paragraph that click prints as it is: commands to paste.
_COMMANDS = re.compile("\b\n(?:.+\n?)*")


def help_texts() -> Iterator[Text]:
    """What `--help` prints: help of options, docstrings of commands, lines of the tables of commands."""
    for module in modules():
        if not module.path.startswith(f"{PACKAGE}/cli/"):
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, FUNCTIONS) and _is_command(node):
                prose = _COMMANDS.sub("", ast.get_docstring(node) or "")
                yield Text("help", module.path, node.name, prose)
            elif isinstance(node, ast.Call):
                for keyword in node.keywords:
                    if keyword.arg in ("help", "epilog") and (text := literal(keyword.value)):
                        yield Text("help", module.path, "help", text)
            elif isinstance(node, ast.Assign) and _is_table(node):
                yield from (
                    Text("help", module.path, "table", text)
                    for part in ast.walk(node.value)
                    if isinstance(part, ast.Dict)
                    for value in part.values
                    if (text := literal(value)) and " " in text
                )


def _is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(each, ast.Call) and _called(each) == "verb" for each in node.decorator_list)


def _is_table(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id in ("VERBS", "COMMANDS") for target in node.targets)


def docstrings() -> Iterator[Text]:
    """Docstrings of modules, classes and functions; those of commands are help."""
    for module in modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                if isinstance(node, FUNCTIONS) and _is_command(node):
                    continue
                if text := ast.get_docstring(node):
                    yield Text("docstrings", module.path, getattr(node, "name", "module"), text)


def comments() -> Iterator[Text]:
    """Comments of Python and SQL files, the lines of a block joined."""
    for module in modules():
        for block in _blocks(_comment_lines(module.source)):
            yield Text("docstrings", module.path, "comment", block)
    for path in tracked(f"{PACKAGE}/*.sql", "schema.sql"):
        lines = enumerate((REPOSITORY / path).read_text().splitlines())
        found = (
            (number, line.strip()[2:].strip()) for number, line in lines if line.strip().startswith("--")
        )
        plain = ((number, text) for number, text in found if not re.match(r"[\w-]+:( |$)", text))
        for block in _blocks(plain):
            yield Text("docstrings", path, "comment", block)


def _comment_lines(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not re.match(
            r"#!|# (noqa|type:|mypy:|fmt:|ruff:)", token.string
        ):
            yield token.start[0], token.string.lstrip("#").strip()


def _blocks(lines: Iterator[tuple[int, str]] | list[tuple[int, str]]) -> Iterator[str]:
    block: list[str] = []
    last = -2
    for number, text in lines:
        if number != last + 1 and block:
            yield " ".join(block)
            block = []
        block.append(text)
        last = number
    if block:
        yield " ".join(block)


def docs() -> Iterator[Text]:
    """The prose of pages that people write: paragraphs, list items and headings, without code and tables."""
    for path in tracked("*.md"):
        if path.startswith("tests/") or Path(path).name in ("CHANGELOG.md", "RESULTS.md"):
            continue
        prose = re.sub(r"^```.*?^```", "", (REPOSITORY / path).read_text(), flags=re.DOTALL | re.MULTILINE)
        section = ""
        for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", prose):
            text = " ".join(paragraph.split())
            if text.startswith("#"):
                section = text.lstrip("# ")
            elif text and not text.startswith(("|", "<", "[!")):
                yield Text("docs", path, section, text)


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """Every class of the package that is not inside a function, with its file."""
    for module in modules():
        yield from ((module.path, node) for node in module.tree.body if isinstance(node, ast.ClassDef))


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function and method of the package, with its file."""
    for module in modules():
        yield from ((module.path, node) for node in ast.walk(module.tree) if isinstance(node, FUNCTIONS))


def constants() -> Iterator[tuple[str, str]]:
    """The constants of every module, with its file."""
    for module in modules():
        for node in module.tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names = (target.id for target in targets if isinstance(target, ast.Name))
            yield from ((module.path, name) for name in names if name.strip("_").isupper())
