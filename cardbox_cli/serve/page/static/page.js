// The script of the inspector: copying, keys, and updates. Every page works without it.
"use strict";

(() => {
  const say = (text) => {
    const place = document.getElementById("said");
    if (place) place.textContent = text;
  };

  // --- copying: to the clipboard if the browser allows it; otherwise the text is selected

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

  // --- updates: by server-sent events; without them, by polling

  // The server sends events for these changes. Polling finds all others, less often while events arrive.
  const EVENTS = ["head", "batch"];
  const POLL_INTERVAL = 5000, POLL_INTERVAL_WITH_EVENTS = 15000, MIN_PAUSE = 400;
  let due = 0, polling = 0, requestedAt = 0, took = 0;

  // A page that is slow to render is requested less often.
  const changed = () => {
    if (due) return;
    due = window.setTimeout(() => {
      due = 0;
      if (!document.hidden) document.body.dispatchEvent(new CustomEvent("cbx:changed"));
    }, Math.max(MIN_PAUSE, 4 * took));
  };

  document.addEventListener("htmx:before:request", () => { requestedAt = performance.now(); });
  document.addEventListener("htmx:after:request", () => { took = performance.now() - requestedAt; });

  const mark = (live, text) => {
    const place = document.querySelector(".live");
    if (!place) return;
    place.hidden = false;
    place.dataset.live = live;
    place.textContent = text;
  };

  // The update mode of the page. If the server cannot be reached, the mark says so and the page stays as it is.
  let mode = null;
  const show = (...values) => {
    mode = values;
    mark(...values);
  };
  const lost = () => mark("lost", "server unreachable");
  document.addEventListener("htmx:response:error", lost);
  document.addEventListener("htmx:error", lost);
  document.addEventListener("htmx:after:swap", (event) => {
    if (mode && event.detail.ctx.response?.status < 400) mark(...mode);
  });

  const pollEvery = (pause) => {
    window.clearInterval(polling);
    polling = window.setInterval(changed, pause);
  };

  const poll = () => {
    pollEvery(POLL_INTERVAL);
    show("polls", "every 5 s");
  };

  // Browsers reconnect a stream that broke off, but not one that was rejected, for example during an outage.
  const MIN_RETRY = 2000, MAX_RETRY = 30000;
  let source = null, retry = MIN_RETRY;

  const follow = (address) => {
    source = new EventSource(address);
    source.onopen = () => {
      // Changes before the connection send no event.
      if (mode) changed();
      retry = MIN_RETRY;
      pollEvery(POLL_INTERVAL_WITH_EVENTS);
      show("yes", "live");
    };
    source.onerror = () => {
      poll();
      if (source.readyState !== EventSource.CLOSED) return;
      window.setTimeout(follow, retry, address);
      retry = Math.min(2 * retry, MAX_RETRY);
    };
    for (const name of EVENTS) source.addEventListener(name, changed);
  };
  window.addEventListener("pagehide", () => source?.close());

  const fresh = document.querySelector("[data-fresh]");
  if (fresh?.dataset.fresh === "polls") poll();
  else if (fresh) follow(document.body.dataset.events);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) changed(); });
})();
