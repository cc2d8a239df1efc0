"""Batches by what people type."""

from cardbox_cli.cli.last import LAST, recall
from cardbox_cli.store.views.batch_views import BatchViews


class ResolvingBatches(BatchViews):
    """Batches that are named on a command line."""

    def resolve(self, given: str) -> str:
        """As the store does; `@last` is the batch that was made last."""
        if given == LAST:
            return recall(self.database.address, self.project_id, "batch")
        return super().resolve(given)
