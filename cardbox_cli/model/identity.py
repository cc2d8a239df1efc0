"""Values that describe projects, agents, tools and API tokens. This module is pure.

It checks the names of agents, worker targets and tools and the parameters of tools, and defines the format of
tokens. cbx checks only rows that it writes. Rows of other programs may have any values.
"""

import base64
import binascii
import hashlib
import re
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from cardbox_cli.errors import InvalidInput
from cardbox_cli.model import exact_json
from cardbox_cli.model.execution.turns import Head
from cardbox_cli.model.ids import check_new_id, new_id_fault, unique
from cardbox_cli.model.layers import FRAMEWORK, KnowledgeScope
from cardbox_cli.text.error_messages import json_type, short_repr

ARCHIVED = "archived"
PROJECT_STATUSES = ("active", "inactive", ARCHIVED)
AFTER_EXECUTION = ("suspend", "terminate")

# The prefixes of ids that are not agents. They may dispatch turns and own agents.
PLATFORM = ("sys.", "tool.")

# The names of tools whose calls cbx or a related program answers by its own functions.
INTERNAL_TOOLS = frozenset(
    {"delegate_async", "launch_principal", "ask_expert", "fork_join", "provision_agent"}
)

# The parameters of a tool that was added without --schema.
NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}

_MAX_LENGTH = 255
# About thirty years. Clocks and deadlines cannot represent much longer times.
_MAX_SECONDS = 1e9
_SUBJECT_TOKEN = re.compile(r"[^\s.*>\x00-\x1f\x7f-\x9f]+")
# Names that all providers accept.
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `public.projects`. Other tables may have rows of a project that has no row here."""

    project_id: str
    title: str
    status: str
    owner_id: str
    created_at: datetime
    updated_at: datetime


class ProjectSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults for composing contexts in a project. Commands and profiles override them."""

    enable_share_context: bool | None = None  # None: the default of the process
    reproducible_layers: list[str] = []
    allow_incomplete_context: bool = False  # whether turns run although cards of their contexts are gone
    knowledge_scope: KnowledgeScope = "project"

    @property
    def stored_layers(self) -> list[str]:
        """Return the layers that are stored with each step, without the framework's layer of old settings."""
        return [name for name in self.reproducible_layers if name != FRAMEWORK]


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the roster. `status` shows whether it is active. The head has the state of the agent."""

    agent_id: str
    profile_box_id: str
    worker_target: str
    tags: list[Any]
    display_name: str | None
    owner_agent_id: str | None
    status: str
    metadata: dict[str, Any]
    created_at: datetime | None

    @property
    def profile_name(self) -> str | None:
        """Return the name that the agent's profile had when the agent got it, or None if it is unknown."""
        name = self.metadata.get("profile_name")
        return name if isinstance(name, str) else None


class RosterEntry(Agent, frozen=True, kw_only=True):
    """An agent and its head. `head` is None if the database has no head for the agent."""

    head: Head | None


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that agents may call. `parameters` is a JSON Schema. Other programs may add `options`."""

    tool_name: str
    description: str | None
    parameters: dict[str, Any]
    target_subject: str | None
    after_execution: str | None
    options: dict[str, Any]

    @property
    def is_read_only(self) -> bool:
        """True if its calls change nothing, as it was registered."""
        return self.options.get("read_only") is True

    @property
    def command(self) -> str | None:
        """Return the command that answers the tool's calls, or None if another program reports results."""
        command = self.options.get("exec")
        return command if isinstance(command, str) and command.strip() else None

    @property
    def timeout_seconds(self) -> float | None:
        """Return the maximum duration of a call, or None if only the general limits apply."""
        for name in ("timeout_seconds", "suspend_timeout_seconds"):
            value = self.options.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
                return float(min(value, _MAX_SECONDS))
        return None


class HandlerTool(Tool, frozen=True, kw_only=True):
    """The definition of a tool whose calls a function of the worker answers."""

    @property
    def ends_turn(self) -> bool:
        return self.after_execution == "terminate"


def allowed_handlers(profile: Mapping[str, Any]) -> list[str]:
    names = profile.get("allowed_internal_tools")
    return unique(name for name in names if isinstance(name, str)) if isinstance(names, list) else []


def is_subject_token(text: str) -> bool:
    """Return whether `text` can be a token of a NATS subject, which has no escape characters."""
    return len(text) <= _MAX_LENGTH and text.isprintable() and _SUBJECT_TOKEN.fullmatch(text) is not None


def check_agent_id(agent_id: str) -> None:
    _check_token(agent_id, "agent id", "researcher-1; agents cannot have ids such as sys.operator")


def check_worker_target(worker_target: str) -> None:
    _check_token(worker_target, "worker target", "worker_generic; the default is that of the profile")


def token_fault(text: str) -> str | None:
    """Return the end of a sentence if an agent or worker target cannot have this name, or None if it can."""
    return new_id_fault(text) if is_subject_token(text) else "must be one word without '.', '*' and '>'"


def _check_token(text: str, what: str, example: str) -> None:
    fault = token_fault(text)
    if fault is not None:
        raise InvalidInput(f"the {what} {short_repr(text)} {fault}", hint=f"for example {example}")


def check_label(text: str, what: str) -> None:
    """Raise InvalidInput unless `text` is one readable line: a title, a display name, a tag."""
    if not text.strip() or len(text) > _MAX_LENGTH or not text.isprintable():
        raise InvalidInput(
            f"the {what} {short_repr(text)} must have 1 to {_MAX_LENGTH} printable characters on one line",
            hint="omit the value, or pass a text",
        )


def check_tool(tool: Tool) -> None:
    """Raise InvalidInput unless providers accept the tool and Postgres can store it."""
    check_tool_name(tool.tool_name)
    _check_parameters(tool.parameters)
    _check_options(tool.options)
    if tool.after_execution not in (None, *AFTER_EXECUTION):
        allowed = " or ".join(AFTER_EXECUTION)
        raise InvalidInput(f"after_execution must be {allowed}, not {tool.after_execution!r}")
    try:
        exact_json.check_storable({"description": tool.description, "parameters": tool.parameters})
        exact_json.check_storable(tool.options, "options")
    except exact_json.Unstorable as exc:
        raise InvalidInput(f"tool {tool.tool_name!r}: {exc}") from exc


def check_tool_name(name: str) -> None:
    if not _TOOL_NAME.fullmatch(name):
        raise InvalidInput(
            f"the tool name {short_repr(name)} must be 1 to 64 letters, digits, '_' and '-'",
            hint="use a name that providers accept",
        )
    check_new_id(name, "the tool name", "begin it with a letter")
    if name in INTERNAL_TOOLS:
        hint = "choose another name"
        raise InvalidInput(f"the tool name {name!r} belongs to an internal handler", hint=hint)


def _check_parameters(parameters: object) -> None:
    """Check the outer part of the schema. The provider checks the schemas of the properties."""
    if not isinstance(parameters, dict) or parameters.get("type") != "object":
        kind = json_type(parameters) if not isinstance(parameters, dict) else "an object without it"
        hint = 'for example {"type": "object", "properties": {"city": {"type": "string"}}}'
        raise InvalidInput(f'the schema must be a JSON object with "type": "object", found {kind}', hint=hint)
    properties = parameters.get("properties", {})
    if not isinstance(properties, dict):
        raise InvalidInput(f'"properties" of the schema must be an object, found {json_type(properties)}')
    for name, each in properties.items():
        if not isinstance(each, dict | bool):
            raise InvalidInput(
                f"the property {short_repr(name)} of the schema must be an object, found {json_type(each)}"
            )
    required = parameters.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise InvalidInput('"required" of the schema must be a list of names')
    if unknown := [short_repr(name) for name in required if name not in properties]:
        raise InvalidInput(f'"required" of the schema names {unknown[0]}, which is not one of its properties')


def _check_options(options: dict[str, Any]) -> None:
    if "exec" in options and not str(options["exec"]).strip():
        hint = "omit it, and the tool waits for a report"
        raise InvalidInput("the command of a tool must not be blank", hint=hint)
    seconds = options.get("timeout_seconds", 1)
    if not (isinstance(seconds, int | float) and 0 < seconds <= _MAX_SECONDS):
        allowed = f"a number of seconds above 0 and up to {_MAX_SECONDS:,.0f}"
        raise InvalidInput(f"the timeout of a tool must be {allowed}, not {seconds!r}")


# --- tokens that open one project to readers over HTTP
#
# A token names its project, so that no look-up crosses projects. Its secret is 256 random bits, which cannot
# be guessed, so a plain SHA-256 of it can be stored.


_PREFIX = "cbx"
_SECRET_BYTES = 32


class ApiToken(msgspec.Struct, frozen=True, kw_only=True):
    """The stored part of a token."""

    token_id: str
    project_id: str
    label: str
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


def new_token(project_id: str) -> str:
    """Return a new token of a project: `cbx.PROJECT.SECRET`, both parts in URL-safe base64."""
    project = base64.urlsafe_b64encode(project_id.encode()).rstrip(b"=").decode()
    return f"{_PREFIX}.{project}.{secrets.token_urlsafe(_SECRET_BYTES)}"


def token_project(token: str) -> str | None:
    """Return the project in a token, or None for an invalid token."""
    mark, _, rest = token.partition(".")
    project, _, secret = rest.partition(".")
    if mark != _PREFIX or not secret or "." in secret:
        return None
    try:
        return _decode(project).decode()
    except (binascii.Error, ValueError):
        return None


def token_hash(token: str) -> bytes:
    """Return the stored form of a token: its SHA-256, 32 bytes."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
