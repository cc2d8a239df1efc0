// The inspector's own script: copying, keys, and saying that something has changed. Every page works without it.
"use strict";

(() => {
  const say = (text) => {
    const place = document.getElementById("said");
    if (place) place.textContent = text;
  };

  // --- copying: to the clipboard where that is allowed, else the text is selected to be copied by hand

  const select = (from) => {
    const range = document.createRange();
    range.selectNodeContents(from);
    const selection = window.getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  };

  const copy = async (button) => {
    const from = button.previousElementSibling;
    if (!from) return;
    const before = (button.dataset.label ??= button.textContent);
    let copied = false;
    try {
      await navigator.clipboard.writeText(from.textContent);
      copied = true;
    } catch {
      select(from);
    }
    button.textContent = copied ? "Copied" : "Selected";
    say(copied ? "Copied." : "Selected. Press Control C, or Command C, to copy.");
    window.setTimeout(() => { button.textContent = before; }, 2000);
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("button[data-copy]");
    if (button) copy(button);
    const opener = event.target.closest?.("button[data-open]");
    if (opener) document.getElementById(opener.dataset.open)?.showModal();
    const all = event.target.closest?.("button[data-unfold]");
    if (all) unfold(document.getElementById(all.dataset.unfold), all);
  });

  const unfold = (within, button) => {
    const folds = [...(within?.querySelectorAll("details") ?? [])];
    const open = folds.some((each) => !each.open);
    for (const each of folds) each.open = open;
    button.setAttribute("aria-expanded", String(open));
  };

  // --- keys

  const isTyping = (target) => target.closest?.("input, textarea, select, [contenteditable]") !== null;

  const stops = () =>
    [...document.querySelectorAll("[data-row]")]
      .map((row) => (row.matches("a, summary, button") ? row : row.querySelector("a, summary, button")))
      .filter((stop) => stop && stop.getClientRects().length);

  const step = (by) => {
    const all = stops();
    if (!all.length) return;
    const row = document.activeElement?.closest?.("[data-row]");
    const now = row ? all.findIndex((stop) => row.contains(stop)) : -1;
    const next = now < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(now + by, 0), all.length - 1);
    all[next].focus();
    all[next].scrollIntoView({ block: "nearest" });
  };

  const keys = {
    j: () => step(1),
    k: () => step(-1),
    "/": () => { const seek = document.querySelector("input[type=search]"); seek?.focus(); seek?.select(); },
    "?": () => document.getElementById("keys")?.showModal(),
    c: () => document.querySelector("button[data-copy]")?.click(),
    n: () => document.querySelector("a[rel=next]")?.click(),
    u: () => document.querySelector("a[data-up]")?.click(),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (isTyping(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    const act = Object.hasOwn(keys, event.key) ? keys[event.key] : null;
    if (!act) return;
    event.preventDefault();
    act();
  });

  // --- what changes: the server's events, or a look now and then where they do not come

  // What the server tells by itself; all else is found by a look, rarely where it tells something.
  const TOLD = ["head", "batch"];
  const POLL = 5000, POLL_BESIDES = 15000, CALM = 400;
  let due = 0, polling = 0, asked = 0, took = 0;

  // A page that takes long to make is asked for less often.
  const changed = () => {
    if (due) return;
    due = window.setTimeout(() => {
      due = 0;
      if (!document.hidden) document.body.dispatchEvent(new CustomEvent("cbx:changed"));
    }, Math.max(CALM, 4 * took));
  };

  document.addEventListener("htmx:before:request", () => { asked = performance.now(); });
  document.addEventListener("htmx:after:request", () => { took = performance.now() - asked; });

  const mark = (live, text) => {
    const place = document.querySelector(".live");
    if (!place) return;
    place.hidden = false;
    place.dataset.live = live;
    place.textContent = text;
  };

  // How the page is followed; what cannot be fetched is said in its place, and the page stays as it was.
  let told = null;
  const show = (...how) => {
    told = how;
    mark(...how);
  };
  const lost = () => mark("lost", "not reached");
  document.addEventListener("htmx:response:error", lost);
  document.addEventListener("htmx:error", lost);
  document.addEventListener("htmx:after:swap", (event) => {
    if (told && event.detail.ctx.response?.status < 400) mark(...told);
  });

  const pollEvery = (pause) => {
    window.clearInterval(polling);
    polling = window.setInterval(changed, pause);
  };

  const poll = () => {
    pollEvery(POLL);
    show("polls", "every 5 s");
  };

  // Browsers come back to a stream that broke off, and never to one that was refused, as while the database is away.
  const AGAIN = 2000, AGAIN_AT_MOST = 30000;
  let source = null, again = AGAIN;

  const follow = (address) => {
    source = new EventSource(address);
    source.onopen = () => {
      // What changed while nothing was told is not told later.
      if (told) changed();
      again = AGAIN;
      pollEvery(POLL_BESIDES);
      show("yes", "live");
    };
    source.onerror = () => {
      poll();
      if (source.readyState !== EventSource.CLOSED) return;
      window.setTimeout(follow, again, address);
      again = Math.min(2 * again, AGAIN_AT_MOST);
    };
    for (const name of TOLD) source.addEventListener(name, changed);
  };
  window.addEventListener("pagehide", () => source?.close());

  const fresh = document.querySelector("[data-fresh]");
  if (fresh?.dataset.fresh === "looks") poll();
  else if (fresh) follow(document.body.dataset.events);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) changed(); });
})();
