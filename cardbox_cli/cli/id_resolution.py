"""The stores of a command line: they resolve ids as people type them, `@last` among them."""

from cardbox_cli.cli.last import LAST, recall
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.views.turns import TurnViews


class ResolvingCards(CardStore):
    """Cards that are named on a command line."""

    def resolve(self, given: str) -> str:
        """As the store does; `@last` is the card that was made last, whether or not it is still there."""
        if given == LAST:
            return recall(self.database.address, self.project_id, "card")
        return super().resolve(given)


class ResolvingBoxes(BoxStore):
    """Boxes that are named on a command line."""

    def resolve(self, given: str) -> str:
        """As the store does; `@last` is the box that was made last, whether or not it is still there."""
        if given == LAST:
            return recall(self.database.address, self.project_id, "box")
        return super().resolve(given)


class ResolvingTurns(TurnViews):
    """Turns that are named on a command line."""

    def resolve(self, given: str) -> str:
        """As the store does; `@last` is the turn that was dispatched last."""
        if given == LAST:
            return recall(self.database.address, self.project_id, "turn")
        return super().resolve(given)
