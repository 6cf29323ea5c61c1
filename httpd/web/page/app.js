// The page: the list of sessions beside the one that is open. What is shown is in
// the address: #/ the list, #/s/ID a session, #/s/ID/42 an event of it, #/s/ID/id:NAME
// the event with that id; after a ? what the list is searched for.

import { api, auth } from "./api.js";
import { takeLogin } from "./login.js";
import { h, icon, notice } from "./dom.js";
import { searchDialog } from "./search.js";
import { SessionList } from "./sessions.js";
import { SessionView } from "./session.js";
import { chooseHint, emptyPage, helpDialog, tokenPage } from "./welcome.js";

const root = document.getElementById("app");
let list = null, main = null, view = null, openID = null, empty = false, offline = null, starting = 0, rights = new Set();

// route reads the address. The query is null if it has none.
function route() {
  const [path, query = null] = split(location.hash, "?");
  const [, kind, id, seq] = path.split("/");
  if (kind !== "s" || !id) return { id: null, seq: 0, query: query ?? "" };
  try {
    if (seq?.startsWith("id:")) return { id: decodeURIComponent(id), seq: 0, event: decodeURIComponent(seq.slice(3)), query };
    return { id: decodeURIComponent(id), seq: Math.floor(Number(seq)) > 0 ? Math.floor(Number(seq)) : 0, query };
  } catch {
    return { id: null, seq: 0, query: query ?? "" };
  }
}

function split(text, mark) {
  const at = text.indexOf(mark);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

const narrow = () => matchMedia("(max-width: 760px)").matches;

// withQuery returns an address that keeps what the list is searched for.
const withQuery = (path) => path + (list?.query ? `?${list.query}` : "");

function goTo(id) { location.hash = withQuery(id ? `#/s/${encodeURIComponent(id)}` : "#/"); }

// show makes the page match the address.
function show() {
  if (location.hash.startsWith("#token=")) { start(); return; }
  if (!list) return;
  const { id, seq, event, query } = route();
  if (query === null) history.replaceState(null, "", withQuery(location.hash)); // a link within the session
  else list.search(query);
  root.firstChild.classList.toggle("reading", id !== null);
  if (event) named(id, event);
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
    main.replaceChildren(empty ? emptyPage(rights) : chooseHint());
    return;
  }
  view = new SessionView(id, rights, {
    back: () => goTo(null),
    label: (label) => { if (narrow()) goTo(null); list.filter(label); },
    live: () => { if (offline) list.refresh(); },
    read: () => list?.seen(id),
    changed: () => list?.refresh(),
  });
  main.replaceChildren(view.el);
  view.open(seq);
  if (!matchMedia("(pointer: coarse)").matches) view.focus();
}

// named goes to the event with an id, by its seq.
async function named(id, event) {
  const from = location.hash;
  try {
    const { seq } = await api.event(id, event);
    if (location.hash === from) location.replace(withQuery(`#/s/${encodeURIComponent(id)}/${seq}`));
  } catch (error) {
    notice(error);
  }
}

// start builds the page, or asks for the token.
async function start(error) {
  view?.close();
  list?.stop();
  view = list = main = null;
  openID = undefined;
  const mine = ++starting;
  error = await takeLogin(auth) ?? error;
  if (mine !== starting) return;
  if (!auth.token) {
    root.replaceChildren(tokenPage(error, () => start()));
    return;
  }
  try {
    rights = new Set((await api.whoami()).rights);
  } catch (failed) {
    if (mine !== starting || failed.status === 401) return;
    rights = new Set(["read", "append", "admin"]); // not known: the server will refuse what is not allowed
  }
  if (mine === starting) build();
}

function build() {
  list = new SessionList(rights, {
    open: goTo,
    empty: (now) => { if (now !== empty) { empty = now; if (!openID && main) main.replaceChildren(empty ? emptyPage(rights) : chooseHint()); root.firstChild.classList.toggle("empty", empty); } },
    offline: away,
    // Typing must not add steps to the history.
    asked: () => history.replaceState(null, "", withQuery(split(location.hash || "#/", "?")[0])),
  });
  main = h("main", { id: "main", tabindex: "-1" });
  root.replaceChildren(h("div.app", null,
    h("header.unseen", null, h("h1", null, "Hansard")),
    h("button.skip", { type: "button", onclick: () => (view ? view.focus() : main.focus()) }, "Skip to the transcript"),
    h("nav.sidebar", { "aria-label": "Sessions" },
      h("header.brand", null,
        h("div.wordmark", null, h("a", { href: "#/" }, h("img", { src: "icon.svg", alt: "" }), "Hansard")),
        rights.has("read") && h("button.quiet", { type: "button", title: "Search all events (s)", "aria-label": "Search all events", onclick: searchEvents }, icon("search")),
        h("button.quiet.theme", { type: "button", title: "Dark or light (t)", "aria-label": "Dark or light", onclick: toggleTheme }, icon("sun"), icon("moon")),
        h("button.quiet", { type: "button", title: "Keyboard (?)", "aria-label": "Keyboard help", onclick: helpDialog }, icon("help"))),
      list.el),
    main));
  empty = false;
  show();
  list.start();
}

auth.refused = (error) => {
  if (!auth.token) return; // it was already reported
  auth.token = null;
  start(`The server did not accept the token: ${error.message}`);
};

// away shows that the list can't be refreshed, until it can.
function away(error) {
  if (!error) {
    offline?.remove();
    offline = null;
  } else if (!offline?.isConnected) {
    offline = notice(error);
  }
}

function searchEvents() {
  if (rights.has("read")) searchDialog(openID ?? null, (address) => { location.hash = withQuery(address); });
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
  f: () => view?.find(),
  s: searchEvents,
  o: () => view?.unfold(),
  y: () => view?.link(),
  ":": () => view?.askSeq(),
  m: () => view?.menu(),
  e: () => view?.edit(),
  n: () => view?.write(),
  c: () => list.create(),
  t: toggleTheme,
  Escape: () => goTo(null),
};

function other(by) {
  const id = list.neighbour(by);
  if (id) goTo(id);
}

addEventListener("keydown", (e) => {
  if (!list || e.altKey || e.defaultPrevented || document.querySelector("dialog[open]")) return;
  if ((e.ctrlKey || e.metaKey) && e.key === "p" && view) { // the whole transcript, not only the part on the screen
    e.preventDefault();
    view.print();
    return;
  }
  if (e.ctrlKey || e.metaKey) return;
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName)) return;
  if (e.key === "Enter" && e.target.matches?.(".event") && view?.unfold()) { e.preventDefault(); return; }
  const act = Object.hasOwn(shortcuts, e.key) ? shortcuts[e.key] : null;
  if (!act) return;
  e.preventDefault();
  act();
});
addEventListener("hashchange", show);
// Unexpected errors are shown, never swallowed.
addEventListener("error", (e) => notice({ message: `The page failed: ${e.message}`, hint: "Reload it; nothing is lost." }));
addEventListener("unhandledrejection", (e) => notice({ message: `The page failed: ${e.reason?.message ?? e.reason}`, hint: "Reload it; nothing is lost." }));

start();
