// The console's script. It refreshes plots and tables, and adds keyboard shortcuts, the theme, and
// questions before changes that can't be undone. Without it, all pages work except the live tail.
"use strict";

const REFRESH_MS = 5000;
const MAX_ROWS = 500;
const root = document.documentElement;

// The theme, before the page is drawn.
const theme = localStorage.getItem("theme");
if (theme === "light" || theme === "dark") root.dataset.theme = theme;

function switchTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const next = (root.dataset.theme || system) === "dark" ? "light" : "dark";
  root.dataset.theme = next;
  localStorage.setItem("theme", next);
}

// Requests the page again, and replaces the parts with data-live.
async function refresh() {
  const live = [...document.querySelectorAll("[data-live]")];
  if (!live.length || document.hidden) return;
  try {
    const answer = await fetch(location.href, { credentials: "same-origin" });
    if (!answer.ok || answer.redirected) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const old of live) {
      const fresh = page.getElementById(old.id);
      if (fresh && !old.contains(document.activeElement) && fresh.innerHTML !== old.innerHTML) {
        old.replaceWith(fresh);
      }
    }
    root.dataset.refreshed = String(Number(root.dataset.refreshed || 0) + 1);
  } catch {
    // The console can't be reached now; the next refresh tries again.
  }
}

function typing(target) {
  return target instanceof Element && target.closest("input, select, textarea") !== null;
}

let went = 0;
function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  const key = event.key;
  if (Date.now() - went < 1500) {
    const link = document.querySelector(`nav a[data-key="${CSS.escape(key)}"]`);
    went = 0;
    if (link) {
      event.preventDefault();
      link.click();
    }
  } else if (key === "g") {
    went = Date.now();
  } else if (key === "/") {
    const search = document.querySelector("[data-search]");
    if (search) {
      event.preventDefault();
      search.focus();
      search.select();
    }
  } else if (key === "d") {
    switchTheme();
  } else if (key === "?") {
    document.getElementById("keys")?.showModal();
  }
}

// Shows the fields that the choice needs.
function showNeeded() {
  const choice = document.getElementById("from");
  for (const label of document.querySelectorAll("[data-when]")) {
    label.hidden = !label.dataset.when.split(" ").includes(choice.value);
  }
}

function startTail(button) {
  const rows = document.getElementById("rows");
  const state = document.getElementById("tail-state");
  const url = new URL(button.dataset.url, location.href);
  url.searchParams.set("at", button.dataset.at);
  const source = new EventSource(url);
  let count = 0;
  source.onmessage = (event) => {
    button.dataset.at = event.lastEventId;
    const html = JSON.parse(event.data);
    if (html) {
      const part = document.createElement("template");
      part.innerHTML = html;
      count += part.content.querySelectorAll("tr").length;
      for (const row of part.content.querySelectorAll("tr")) row.classList.add("fresh");
      rows.prepend(part.content);
      while (rows.rows.length > MAX_ROWS) rows.deleteRow(-1);
      document.getElementById("nothing")?.remove();
    }
    state.textContent = `· live, ${count} new`;
  };
  source.addEventListener("problem", (event) => {
    state.textContent = `· ${JSON.parse(event.data)}`;
  });
  state.textContent = "· live";
  return source;
}

function setUp() {
  document.getElementById("theme")?.addEventListener("click", switchTheme);
  document.getElementById("help")?.addEventListener("click", () => {
    document.getElementById("keys").showModal();
  });
  document.addEventListener("keydown", onKey);
  document.addEventListener("submit", (event) => {
    const words = event.target.dataset.confirm;
    if (words && !confirm(words)) event.preventDefault();
  });
  if (document.getElementById("from")) {
    document.getElementById("from").addEventListener("change", showNeeded);
    showNeeded();
  }
  for (const field of document.querySelectorAll("[data-clears]")) {
    field.addEventListener("input", () => {
      field.form.elements[field.dataset.clears].checked = false;
    });
  }
  const tail = document.getElementById("tail");
  let source = null;
  tail?.addEventListener("click", () => {
    if (source) {
      source.close();
      source = null;
      document.getElementById("tail-state").textContent = "· stopped";
    } else {
      source = startTail(tail);
    }
    tail.setAttribute("aria-pressed", String(source !== null));
    tail.textContent = source ? "Stop" : "Live tail";
  });
  setInterval(refresh, REFRESH_MS);
}

document.addEventListener("DOMContentLoaded", setUp);
