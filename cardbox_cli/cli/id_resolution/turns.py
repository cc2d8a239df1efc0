"""Turns by what people type."""

from cardbox_cli.cli.last import LAST, recall
from cardbox_cli.store.views.turn_views import TurnViews


class ResolvingTurns(TurnViews):
    """Turns that are named on a command line."""

    def resolve(self, given: str) -> str:
        """As the store does; `@last` is the turn that was dispatched last."""
        if given == LAST:
            return recall(self.database.address, self.project_id, "turn")
        return super().resolve(given)
