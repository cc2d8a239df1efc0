"""All handlers that models may call: those of cbx and of installed packages.

Commands and servers pass `HANDLERS` to the code that runs or shows turns. The first lookup loads the handlers
of cbx, because their arguments are pydantic models.
"""

from cardbox_cli.execution.handlers import Handler, Handlers


def _load_own_handlers() -> tuple[Handler, ...]:
    from cardbox_cli.orchestration import handlers

    return handlers.own_handlers()


HANDLERS = Handlers(_load_own_handlers)
