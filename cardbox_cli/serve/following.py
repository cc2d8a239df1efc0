"""The last look at each project that is followed: however many follow one, it is looked at once."""

import time
from threading import Lock

from cardbox_cli.store.views.changes import ChangeViews, Standing

# Seconds that a look is as good as a new one, and how long one is kept that nobody asks for.
_GOOD = 0.8
_KEPT = 60.0


class _Followed:
    def __init__(self) -> None:
        self.lock = Lock()
        self.at = -_KEPT
        self.standing: Standing | None = None


class Following:
    """Looks of many threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._projects: dict[str, _Followed] = {}

    def look(self, views: ChangeViews) -> Standing:
        """How a project stands, by a look of this moment or of the one before."""
        followed = self._followed(views.project_id)
        with followed.lock:
            if followed.standing is None or time.monotonic() - followed.at > _GOOD:
                followed.standing = views.look()
                followed.at = time.monotonic()
            return followed.standing

    def _followed(self, project_id: str) -> _Followed:
        with self._lock:
            if project_id not in self._projects:
                oldest = time.monotonic() - _KEPT
                self._projects = {
                    name: each
                    for name, each in self._projects.items()
                    if each.at > oldest or each.lock.locked()
                }
                self._projects[project_id] = _Followed()
            return self._projects[project_id]
