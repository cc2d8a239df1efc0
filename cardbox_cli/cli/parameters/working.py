"""The options that say which commands a worker runs, what they get, and how what they print is read."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.parameters.types import FILE, REQUEST_FORMAT, OneOf, Seconds
from cardbox_cli.execution.worker.commands.environment import PASSED_ON
from cardbox_cli.providers.registry import DEFAULT
from cardbox_cli.settings import MAX_STEPS

# As of `execution/worker/answers/step_answers`, which is loaded when it is needed.
ANSWER_MODES = ("auto", "response", "text", "cards")

Exec = Annotated[
    str,
    Option("--exec", metavar="CMD", help="What answers for the model: reads the request, prints the answer."),
]
RequestFormat = Annotated[
    str | None,
    Option(
        "--format",
        "-f",
        click_type=REQUEST_FORMAT,
        help=f"The request's, as of `cbx render`. Default: {DEFAULT}.",
    ),
]
CommandTimeout = Annotated[
    float,
    Option("--timeout", click_type=Seconds(min=0.1), help="Seconds that one call of the command may take."),
]
MaxSteps = Annotated[
    int | None,
    Option(
        "--max-steps",
        metavar="N",
        help=f"{MAX_STEPS.help} Default: {MAX_STEPS.name}, or {MAX_STEPS.default}.",
    ),
]
AnswersRead = Annotated[
    str,
    Option(
        "--answers",
        click_type=OneOf(lambda: ANSWER_MODES, what="mode"),
        help="How its output is read: a whole response or message, else text (auto); only the first; "
        "only text; or lines of cards.",
    ),
]
Variables = Annotated[
    list[str] | None,
    Option(
        "--env",
        metavar="NAME",
        help="A variable that commands get, too, such as a provider's key. Of the others they get "
        f"{', '.join(PASSED_ON)}. Repeat for several.",
    ),
]
ToolsFile = Annotated[
    str | None,
    Option("--tools", click_type=FILE, help="The commands of tools, in YAML; they win over stored ones."),
]
TrustStored = Annotated[
    bool,
    Option(
        "--trust-stored-commands",
        help="Run the commands that tools are stored with, as on an embedded server without root.",
    ),
]
