"""Cards and boxes by what people type."""

from cardbox_cli.cli.last import LAST, recall
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore


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
