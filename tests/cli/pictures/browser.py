"""A browser without a window, from Debian's package, and the checks of axe-core within it; skipped where missing."""

import json
import os
import re
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

from tests.packages import axe_core, program

_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')


def dom(page: Path, *options: str) -> str:
    """The page as the browser has it once its scripts are done."""
    command = [
        program("chromium"),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        f"--user-data-dir={page.parent / 'browser'}",
        "--virtual-time-budget=4000",
        *options,
        "--dump-dom",
        page.as_uri(),
    ]
    # The browser keeps its crash reports in the home directory.
    environment = {**os.environ, "HOME": str(page.parent)}
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=60, env=environment
    ).stdout


def faults(page: Path, *options: str) -> list[dict[str, Any]]:
    """The serious faults that axe-core finds in a page: which rule, and where."""
    checked = page.with_name("checked.html")
    # The page's policy lets no script run: the checks run in a copy without it.
    found = (
        "axe.run().then(found => { const out = document.createElement('pre'); out.id = 'axe-found';"
        "out.textContent = JSON.stringify(found.violations.map(each => ({id: each.id, impact: each.impact,"
        "where: each.nodes.map(node => node.html)}))); document.body.append(out); });"
    )
    script = f"<script>{axe_core()}</script><script>{found}</script></body>"
    text = _POLICY.sub("", page.read_text())
    checked.write_text(text.replace("</body>", script))
    shown = dom(checked, *options)
    answer = re.search(r'<pre id="axe-found">(.*?)</pre>', shown, re.DOTALL)
    assert answer is not None, "axe-core did not come to an end"
    violations = json.loads(unescape(answer[1]))
    return [each for each in violations if each["impact"] in ("serious", "critical")]
