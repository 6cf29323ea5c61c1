// SessionList is the list of sessions, newest first: searched, filtered by labels, archived ones or
// the others, refreshed while the page is visible, extended as it is scrolled.

import { api } from "./api.js";
import { newSession } from "./dialogs.js";
import { announce, h, icon } from "./dom.js";
import { holderName } from "./event.js";
import { ago, exactTime, number, ticking } from "./format.js";
import { Menu } from "./menu.js";
import { isSaved, saveSearch, savedSearches, searchName } from "./saved.js";
import { unread } from "./seen.js";

const refreshEvery = 2_500;
const pageSessions = 50;

export class SessionList {
  #hooks; #list; #scroller; #search; #filters; #foot; #rows = new Map(); #order = []; #labels = []; #archived = false; #next = null; #rights; #started = false;
  #asked = null; #loading = false; #timer; #open = null; #failures = 0; #settled = false; #typing; #work;

  // The hooks are open(id), empty(yes), offline(error or null) and asked(query), when
  // the search changes. The rights are a set.
  constructor(rights, hooks) {
    this.#hooks = hooks;
    this.#work = h("div.work", { hidden: true, role: "progressbar", "aria-label": "Searching" });
    this.#search = h("input.search", { type: "search", placeholder: "Search sessions", "aria-label": "Search sessions by id and title", autocomplete: "off", spellcheck: "false" });
    this.#filters = h("div.filters", { hidden: true });
    this.#list = h("ul.sessions", { "aria-label": "Sessions, newest first" });
    this.#foot = h("div.foot", { role: "status" });
    this.#scroller = h("div.list-scroller", { tabindex: "-1" }, this.#list, this.#foot);
    this.el = h("div.session-list", null,
      h("div.searching", null, this.#search, h("kbd", { "aria-hidden": "true" }, "/"),
        new Menu("Archive and saved searches", () => this.#choices(), "Archive and saved searches").el,
        rights.has("append") && h("button.new", { type: "button", title: "New session (c)", "aria-label": "New session", onclick: () => this.create() }, icon("plus"))),
      this.#work, this.#filters, this.#scroller);
    this.#rights = rights;
    this.#search.addEventListener("input", () => {
      clearTimeout(this.#typing);
      this.#typing = setTimeout(() => this.#changed(), 180);
    });
    this.#search.addEventListener("keydown", (e) => {
      if (e.key === "Escape") { this.#search.value ? (this.#search.value = "", this.#changed()) : this.#search.blur(); e.stopPropagation(); }
      if (e.key === "Enter") { this.#search.blur(); if (this.#order[0]) hooks.open(this.#order[0]); }
    });
    this.#scroller.addEventListener("scroll", () => {
      const { scrollTop, scrollHeight, clientHeight } = this.#scroller;
      if (scrollHeight - scrollTop - clientHeight < 600) this.#more();
    }, { passive: true });
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.refresh(); });
  }

  get filtered() { return this.#search.value.trim() !== "" || this.#labels.length > 0 || this.#archived; }

  // query is what is searched for, in the form of the address.
  get query() {
    const q = new URLSearchParams();
    if (this.#search.value.trim()) q.set("q", this.#search.value.trim());
    for (const label of this.#labels) q.append("label", label);
    if (this.#archived) q.set("archived", "only");
    return q.toString();
  }

  // search shows the sessions that an address asks for.
  search(query) {
    if (query === this.query) return;
    const q = new URLSearchParams(query);
    this.#search.value = q.get("q") ?? "";
    this.#labels = q.getAll("label").filter((l) => l.indexOf("=") > 0);
    this.#archived = q.get("archived") === "only";
    this.#showFilters();
    if (this.#started) this.#ask();
  }

  // changed handles a search that the reader enters, not the address.
  #changed() {
    this.#hooks.asked(this.query);
    return this.#ask();
  }

  // choices returns the entries of the menu: the archive, and saved searches.
  #choices() {
    const query = this.query;
    const go = (to) => { this.search(to); this.#hooks.asked(this.query); };
    return [
      ["file", this.#archived ? "Sessions that are not archived" : "Archived sessions", "", () => this.#showArchived(!this.#archived)],
      query !== "" && [isSaved(query) ? "cross" : "plus", isSaved(query) ? "Forget this search" : "Save this search", "", () => saveSearch(query, !isSaved(query))],
      ...savedSearches().map((saved) => ["search", searchName(saved), "", () => go(saved)]),
    ].filter(Boolean);
  }

  #showArchived(yes) {
    this.#archived = yes;
    this.#showFilters();
    return this.#changed();
  }

  create() {
    if (this.#rights.has("append")) newSession((id) => { this.refresh(); this.#hooks.open(id); });
  }

  // seen updates the marks of what has been read since.
  seen(id) {
    const row = this.#rows.get(id);
    if (row) this.#row(row.info);
  }

  start() { this.#started = true; return this.#ask(); }
  stop() { clearTimeout(this.#timer); this.#asked?.abort(); }
  focusSearch() { this.#search.focus(); this.#search.select(); }

  // filter shows only sessions with a label, "k=v", besides those chosen before.
  filter(label) {
    if (!this.#labels.includes(label)) this.#labels.push(label);
    this.#showFilters();
    return this.#changed();
  }

  // selected marks the session that is open.
  selected(id) {
    this.#rows.get(this.#open)?.link.removeAttribute("aria-current");
    this.#open = id;
    const row = this.#rows.get(id);
    row?.link.setAttribute("aria-current", "page");
    row?.el.scrollIntoView({ block: "nearest" });
  }

  // neighbour returns the session before or after the open one.
  neighbour(by) {
    const at = this.#order.indexOf(this.#open);
    return this.#order[at < 0 ? (by > 0 ? 0 : this.#order.length - 1) : at + by] ?? null;
  }

  #query() { return { q: this.#search.value.trim(), labels: this.#labels, archived: this.#archived ? "only" : "no", limit: pageSessions }; }

  // ask reloads the list for the current search.
  async #ask() {
    this.stop();
    this.#order = [];
    this.#next = null;
    this.#settled = false;
    this.#loading = false;
    // Show progress, unless the answer comes at once.
    const slow = setTimeout(() => { this.#work.hidden = false; }, 150);
    await this.refresh();
    clearTimeout(slow);
    this.#work.hidden = true;
    if (this.filtered) announce(`${this.#order.length}${this.#next ? " or more" : ""} sessions found`);
  }

  // refresh loads the newest sessions and puts them before those already known.
  async refresh() {
    clearTimeout(this.#timer);
    this.#asked?.abort();
    const asked = (this.#asked = new AbortController());
    try {
      const page = await api.sessions(this.#query(), asked.signal);
      if (asked.signal.aborted) return;
      this.#failures = 0;
      this.#hooks.offline(null);
      this.#merge(page);
    } catch (error) {
      if (asked.signal.aborted || error.status === 401) return;
      this.#failures++;
      this.#hooks.offline(error);
    }
    if (!document.hidden) this.#timer = setTimeout(() => this.refresh(), Math.min(15_000, refreshEvery * 2 ** this.#failures));
  }

  #merge(page) {
    const sessions = page.sessions ?? [];
    const ids = sessions.map((s) => s.id);
    const fresh = new Set(ids);
    // Known sessions that should be on this page and are not are gone.
    const edge = page.next ? new Date(sessions.at(-1).updated).getTime() : -Infinity;
    const older = this.#order.filter((id) => !fresh.has(id) && new Date(this.#rows.get(id)?.info.updated).getTime() <= edge);
    if (!this.#settled) { this.#next = page.next ?? null; this.#settled = true; }
    for (const info of sessions) this.#row(info);
    this.#show([...ids, ...older]);
    this.#hooks.empty(sessions.length === 0 && !this.filtered);
  }

  async #more() {
    if (this.#loading || !this.#next) return;
    this.#loading = true;
    const cursor = this.#next;
    let again = false;
    this.#foot.textContent = "Loading…";
    try {
      const page = await api.sessions({ ...this.#query(), cursor });
      if (this.#next !== cursor) return; // the search has changed since
      this.#next = page.next ?? null;
      for (const info of page.sessions ?? []) this.#row(info);
      const known = new Set(this.#order);
      const added = (page.sessions ?? []).map((s) => s.id).filter((id) => !known.has(id));
      this.#show([...this.#order, ...added]);
      again = added.length === 0; // recently changed sessions come again at the end; a page of only those adds no rows to scroll to
    } catch (error) {
      this.#foot.replaceChildren(error.message, " ", h("button.action", { type: "button", onclick: () => this.#more() }, "Try again"));
    } finally {
      this.#loading = false;
    }
    if (again) await this.#more();
  }

  // show puts the rows into this order, moving only those that have to.
  #show(order) {
    this.#order = order;
    const wanted = new Set(order);
    for (const [id, row] of this.#rows) if (!wanted.has(id)) { row.el.remove(); this.#rows.delete(id); }
    let at = this.#list.firstChild;
    for (const id of order) {
      const { el } = this.#rows.get(id);
      if (el === at) at = at.nextSibling;
      else this.#list.insertBefore(el, at);
    }
    this.#foot.textContent = this.#next ? "" : order.length ? `${number(order.length)} session${order.length === 1 ? "" : "s"}` : this.filtered ? "No session matches." : "";
  }

  // row makes or updates the row of a session.
  #row(info) {
    const fresh = unread(info);
    const key = JSON.stringify([{ ...info, cursor: null }, fresh === Infinity ? "new" : fresh]);
    let row = this.#rows.get(info.id);
    if (row?.key === key) return;
    if (!row) {
      const link = h("a", { href: `#/s/${encodeURIComponent(info.id)}` });
      row = { link, el: h("li", null, link) };
      if (info.id === this.#open) link.setAttribute("aria-current", "page");
      this.#rows.set(info.id, row);
    }
    row.info = info;
    row.key = key;
    row.el.classList.toggle("unread", fresh > 0);
    const labels = Object.entries(info.labels ?? {});
    const named = Boolean(info.title || info.preview);
    row.link.replaceChildren(
      h("span.line", null,
        fresh > 0 && h("span.fresh" + (fresh === Infinity ? "" : ".counted"), { title: fresh === Infinity ? "Not opened yet" : `${number(fresh)} new` }, h("span.unseen", null, "unread "), fresh === Infinity ? "" : fresh > 99 ? "99+" : String(fresh)),
        h("bdi.title" + (info.title ? "" : info.preview ? ".said" : ".plain-id"), null, info.title || info.preview || info.id),
        ticking(h("time", { datetime: info.updated, title: exactTime(info.updated) }), () => ago(info.updated))),
      h("span.line.small", null,
        info.damaged && h("span.badge.bad", null, icon("warning"), "damaged"),
        info.unreadable && h("span.badge.bad", null, icon("warning"), "unreadable"),
        info.turn && h("span.badge.held", { title: `${holderName(info.turn.holder)} holds the turn` }, h("span.dot"), h("bdi", null, holderName(info.turn.holder))),
        h("span.count", null, `${number(info.last_seq)} event${info.last_seq === 1 ? "" : "s"}`),
        named && h("bdi.id", null, info.id)));
    row.el.replaceChildren(row.link, ...(labels.length ? [h("div.labels", null, labels.slice(0, 4).map(([k, v]) => this.#label(`${k}=${v}`)), labels.length > 4 && h("span.quiet", null, `+${labels.length - 4}`))] : []));
  }

  #label(text) {
    return h("button.label", { type: "button", title: `Only sessions with ${text}`, onclick: () => this.filter(text) }, h("bdi", null, text));
  }

  #showFilters() {
    this.#filters.hidden = this.#labels.length === 0 && !this.#archived;
    const archive = this.#archived ? [h("button.label.chosen", { type: "button", "aria-label": "Leave the archive", onclick: () => this.#showArchived(false) }, "archived", icon("cross"))] : [];
    this.#filters.replaceChildren(...archive, ...this.#labels.map((label) => h("button.label.chosen", {
      type: "button", "aria-label": `Do not filter by ${label}`, onclick: () => {
        this.#labels = this.#labels.filter((l) => l !== label);
        this.#showFilters();
        this.#changed();
      },
    }, h("bdi", null, label), icon("cross"))));
  }
}
