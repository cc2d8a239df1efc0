"""Rules of Anthropic's Messages about what some of its models refuse, and others take.

Of models that are not known by their names nothing is claimed.
"""

from collections.abc import Iterator

from cardbox_cli.context.lint.parameters import number_of, value_at
from cardbox_cli.context.lint.rule import Hit, Rules
from cardbox_cli.context.lint.subject import Subject
from cardbox_cli.context.parts import text_at
from cardbox_cli.context.providers.anthropic.models import (
    efforts,
    longest_answer,
    takes_either,
    takes_system_inside,
    thinks,
)

RULES = Rules("Anthropic docs, Models overview")


@RULES.error(
    "role-refused",
    source="Anthropic docs, Mid-conversation system messages",
    remedy="say it in `system`, or choose Claude Opus 4.8 or later",
)
def _roles(subject: Subject) -> Iterator[Hit]:
    """As logged, a message of the role `system` for a model before Claude Opus 4.8. Rendering moves it up."""
    if subject.logged is None or subject.request.model is None or takes_system_inside(subject.request.model):
        return
    for entry, message in subject.logged.messages:
        if text_at(message, "role") == "system":
            yield entry, f"{subject.request.model} takes no system message among the others"


@RULES.error(
    "parameter-refused",
    source="Anthropic docs, Effort; Adaptive thinking",
    remedy="leave the parameter out, or choose another model",
)
def _parameters(subject: Subject) -> Iterator[Hit]:
    """A parameter that the model does not take: an `effort` where it cannot be asked for, or not for that
    much; `thinking` where it does not think, or not of type `adaptive`."""
    model = subject.request.model
    known, effort = efforts(model), value_at(subject.beside, "output_config.effort")
    if effort is not None and known is not None and effort not in known:
        words = f"knows the efforts {', '.join(known)}" if known else "takes no effort"
        yield None, f"{model} {words}; it is {effort!r}"
    mode = value_at(subject.beside, "thinking.type")
    if mode in ("enabled", "adaptive") and not thinks(model, adaptive=mode == "adaptive"):
        yield None, f"{model} does no thinking of type {mode!r}"


@RULES.error("answer-too-long", remedy="lower max_tokens")
def _too_long(subject: Subject) -> Iterator[Hit]:
    """A `max_tokens` above what the model's answers may have."""
    wanted, most = number_of(subject.beside.get("max_tokens")), longest_answer(subject.request.model)
    if wanted is not None and most is not None and wanted > most:
        yield None, f"max_tokens is {wanted}, and an answer of {subject.request.model} has at most {most}"


@RULES.warning("answer-for-batches", remedy="lower max_tokens, unless it is for a batch")
def _for_batches(subject: Subject) -> Iterator[Hit]:
    """A `max_tokens` above what the model's answers may have outside of batches, where a beta header allows
    more."""
    wanted = number_of(subject.beside.get("max_tokens"))
    most = longest_answer(subject.request.model, outside_batches=True)
    if wanted is not None and most is not None and wanted > most:
        yield None, f"max_tokens is {wanted}, and an answer of {subject.request.model} has at most {most}"


@RULES.error(
    "parameters-exclusive",
    source="what the API answers: `temperature` and `top_p` cannot both be specified for this model",
    remedy="leave one of them out",
)
def _exclusive(subject: Subject) -> Iterator[Hit]:
    """`temperature` beside `top_p`, for Claude Opus 4.1 and the models of 4.5 and 4.6."""
    sent = subject.beside
    both = sent.get("temperature") is not None and sent.get("top_p") is not None
    if both and takes_either(subject.request.model):
        yield None, f"{subject.request.model} takes a temperature or a top_p, and both are set"
