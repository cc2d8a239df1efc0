"""Who is in the projects of a fleet, and what the turns there do."""

from typing import Literal

import msgspec

from cardbox_cli.execution.provision import AgentRequest, provision
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.cards import draft_card
from cardbox_cli.model.identity import NO_PARAMETERS, Tool
from cardbox_cli.model.ids import new_box_id
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.profiles import ProfileStore
from cardbox_cli.store.tools import ToolStore

# What a turn does: answer, answer slowly, fail, call a tool that has a command, one that the test answers, or
# one that another agent's turn answers.
Kind = Literal["plain", "slow", "fail", "look", "ask", "delegate"]
KINDS: tuple[Kind, ...] = ("plain", "slow", "fail", "look", "ask", "delegate")
SHARES = (50, 15, 5, 14, 10, 6)

_CALL = (
    r"""printf '{"role":"assistant","content":null,"tool_calls":[{"id":"","type":"function","""
    r""""function":{"name":"%s","arguments":"{}"}}]}\n'"""
)
# The model. A turn's own results stand behind its instruction, those of earlier turns before it.
MODEL = f"""asked=$(cat)
case $asked in
  *"please fail"*) exit 3 ;;
  *"please slow"*) sleep 0.4; echo done ;;
  *"please "*'"role":"tool"'*) echo done ;;
  *"please look"*) {_CALL} look ;;
  *"please ask"*) {_CALL} ask ;;
  *"please delegate"*) {_CALL} delegate ;;
  *) echo done ;;
esac"""


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """An agent. `output_box_id` is the box that all its turns write to; without one each turn has its own."""

    project: str
    agent_id: str
    output_box_id: str | None


class People(msgspec.Struct, frozen=True, kw_only=True):
    """All agents, and the context boxes of each project by what their instruction asks for."""

    all: list[Person]
    contexts: dict[tuple[str, Kind], str]

    def of(self, project: str) -> list[Person]:
        return [person for person in self.all if person.project == project]


def populate(database: Database, projects: tuple[str, ...], agents: int) -> People:
    """Make `agents` agents, spread over the projects, with profile, tools and instructions."""
    contexts: dict[tuple[str, Kind], str] = {}
    for project in projects:
        _equip(database, project)
        contexts |= {(project, kind): _instruction(database, project, kind) for kind in KINDS}
    everybody = [_person(number, projects[number % len(projects)]) for number in range(agents)]
    for person in everybody:
        provision(database, person.project, AgentRequest(agent_id=person.agent_id, profile_name="clerk"))
    return People(all=everybody, contexts=contexts)


def _person(number: int, project: str) -> Person:
    box_id = new_box_id() if number % 3 == 0 else None
    return Person(project=project, agent_id=f"agent_{number}", output_box_id=box_id)


def _equip(database: Database, project: str) -> None:
    profile = {"name": "clerk", "worker_target": "worker_generic", "tags": [], "allowed_tools": None}
    ProfileStore(database, project).save(profile, author_id="t")
    for name, options in (("look", {"exec": "cat"}), ("ask", {}), ("delegate", {})):
        tool = Tool(
            tool_name=name,
            description=name,
            parameters=NO_PARAMETERS,
            target_subject=None,
            after_execution=None,
            options=options,
        )
        ToolStore(database, project).add(tool, actor="t")


def _instruction(database: Database, project: str, kind: Kind) -> str:
    runtime = Runtime(database, project)
    card = draft_card("task.instruction", f"please {kind}")
    runtime.cards.add(card)
    return runtime.boxes.create([card.card_id]).box_id
