// The page: the list of sessions beside the one that is open. What is shown is in
// the address: #/ the list, #/s/ID a session, #/s/ID/42 an event of it.

import { auth, takeToken } from "./api.js";
import { h, icon, notice } from "./dom.js";
import { SessionList } from "./sessions.js";
import { SessionView } from "./session.js";
import { chooseHint, emptyPage, helpDialog, tokenPage } from "./welcome.js";

const root = document.getElementById("app");
let list = null, main = null, view = null, openID = null, empty = false, offline = null;

function route() {
  const [, kind, id, seq] = location.hash.split("/");
  if (kind !== "s" || !id) return { id: null, seq: 0 };
  try {
    return { id: decodeURIComponent(id), seq: Math.floor(Number(seq)) > 0 ? Math.floor(Number(seq)) : 0 };
  } catch {
    return { id: null, seq: 0 };
  }
}

const narrow = () => matchMedia("(max-width: 760px)").matches;

function goTo(id) { location.hash = id ? `#/s/${encodeURIComponent(id)}` : "#/"; }

// show brings the page to what the address says.
function show() {
  if (location.hash.startsWith("#token=")) { takeToken(); start(); return; }
  if (!list) return;
  const { id, seq } = route();
  root.firstChild.classList.toggle("reading", id !== null);
  if (id === openID && view) {
    if (seq) view.jump(seq);
    return;
  }
  view?.close();
  view = null;
  openID = id;
  list.selected(id);
  if (id === null) {
    document.title = "Hansard";
    main.replaceChildren(empty ? emptyPage() : chooseHint());
    return;
  }
  view = new SessionView(id, {
    back: () => goTo(null),
    label: (label) => { if (narrow()) goTo(null); list.filter(label); },
    live: () => { if (offline) list.refresh(); },
  });
  main.replaceChildren(view.el);
  view.open(seq);
  if (!matchMedia("(pointer: coarse)").matches) view.focus();
}

// start builds the page, or asks for the token.
function start(error) {
  view?.close();
  list?.stop();
  view = list = main = null;
  openID = undefined;
  if (!auth.token) {
    root.replaceChildren(tokenPage(error, () => start()));
    return;
  }
  list = new SessionList({
    open: goTo,
    empty: (now) => { if (now !== empty) { empty = now; if (!openID && main) main.replaceChildren(empty ? emptyPage() : chooseHint()); root.firstChild.classList.toggle("empty", empty); } },
    offline: away,
  });
  main = h("main", { id: "main", tabindex: "-1" });
  root.replaceChildren(h("div.app", null,
    h("button.skip", { type: "button", onclick: () => (view ? view.focus() : main.focus()) }, "Skip to the transcript"),
    h("nav.sidebar", { "aria-label": "Sessions" },
      h("header.brand", null,
        h("h1.wordmark", null, h("a", { href: "#/" }, h("img", { src: "icon.svg", alt: "" }), "Hansard")),
        h("button.quiet", { type: "button", title: "Dark or light (t)", "aria-label": "Dark or light", onclick: toggleTheme }, icon("sun"), icon("moon")),
        h("button.quiet", { type: "button", title: "Keyboard (?)", "aria-label": "Keyboard help", onclick: helpDialog }, icon("help"))),
      list.el),
    main));
  list.start();
  show();
}

auth.refused = (error) => {
  if (!list) return;
  auth.token = null;
  start(`The server did not take the token: ${error.message}`);
};

// away says that the list can't be refreshed, until it can.
function away(error) {
  if (!error) {
    offline?.remove();
    offline = null;
  } else if (!offline?.isConnected) {
    offline = notice(error);
  }
}

function toggleTheme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("hansard.theme", document.documentElement.dataset.theme); } catch { /* it lasts as long as the page */ }
}

const shortcuts = {
  "/": () => { if (narrow()) goTo(null); list.focusSearch(); },
  "?": helpDialog,
  j: () => (view ? view.step(1) : other(1)),
  k: () => (view ? view.step(-1) : other(-1)),
  J: () => other(1),
  K: () => other(-1),
  g: () => view?.toStart(),
  G: () => view?.toEnd(),
  n: () => view?.write(),
  t: toggleTheme,
  Escape: () => goTo(null),
};

function other(by) {
  const id = list.neighbour(by);
  if (id) goTo(id);
}

addEventListener("keydown", (e) => {
  if (!list || e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented || document.querySelector("dialog[open]")) return;
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName)) return;
  const act = Object.hasOwn(shortcuts, e.key) ? shortcuts[e.key] : null;
  if (!act) return;
  e.preventDefault();
  act();
});
addEventListener("hashchange", show);
// What nobody expected is said, never swallowed.
addEventListener("error", (e) => notice({ message: `The page failed: ${e.message}`, hint: "Reload it; nothing is lost." }));
addEventListener("unhandledrejection", (e) => notice({ message: `The page failed: ${e.reason?.message ?? e.reason}`, hint: "Reload it; nothing is lost." }));

takeToken();
start();
