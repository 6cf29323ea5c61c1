// Transcript shows a session's events: it loads them as the reader scrolls, in both
// directions, follows the end while the reader is there, and jumps to a seq.

import { announce, h, icon } from "./dom.js";
import { api } from "./api.js";
import { copyLink, speaker, toggleFolds } from "./event.js";
import { Find } from "./find.js";
import { number } from "./format.js";
import { EventWindow, rowsMax } from "./window.js";

const pageEvents = 60; // requested at a time
const pageBytes = 2_000_000; // past this: request fewer
const nearPixels = 2500; // closer than this to an end of the window: load more

export class Transcript {
  #id; #scroller; #window; #hooks; #stop = new AbortController();
  #last = 0; // of the session, as far as it is known
  #end = Infinity; // of what can be read: less than #last in a damaged session
  #readTo = 0; // the last seq when the reader left the end
  #queue = []; #flushing = false; #loading = false; #step = pageEvents; #marked = 0;
  #pill; #top; #position = ""; #looking = false; #find;

  // The hooks are error(e), position(text), read(seq) and fork(seq), for those who may.
  constructor(id, hooks) {
    this.#id = id;
    this.#hooks = hooks;
    this.#top = h("div.edge");
    this.#scroller = h("div.scroller", { tabindex: "0", role: "log", "aria-label": "Transcript", "aria-live": "off" }, this.#top);
    this.#window = new EventWindow(this.#scroller, id, { error: hooks.error, fork: hooks.fork, changed: () => this.#find.mark() });
    this.#find = new Find(id, {
      jump: (seq) => this.jump(seq, true), row: (seq) => this.#window.row(seq), rows: () => this.#window.elements, from: () => this.#window.visible().first,
      error: hooks.error, closed: () => this.focus(),
    });
    this.#pill = h("button.pill", { type: "button", hidden: true, onclick: () => this.toEnd() });
    this.el = h("div.transcript", null, this.#find.el, this.#scroller, this.#pill);
    // Many scroll events may come before a frame is painted; one check is enough.
    this.#scroller.addEventListener("scroll", () => {
      this.#window.scrolled();
      if (this.#looking) return;
      this.#looking = true;
      requestAnimationFrame(() => { this.#looking = false; this.#scrolled(); });
    }, { passive: true });
    document.addEventListener("visibilitychange", () => this.#showPosition(), { signal: this.#stop.signal });
  }

  get last() { return this.#last; }
  get context() { return this.#window.context; }

  focus() { this.#scroller.focus({ preventScroll: true }); }
  find() { this.#find.open(); }

  close() {
    this.#stop.abort();
    this.#window.close();
  }

  // open shows the session at a seq, or at its end. The info is the session's.
  async open(info, seq) {
    this.#last = info.last_seq;
    this.#readTo = this.#last;
    await this.jump(seq || this.#readable());
    if (!seq) this.#follow(true);
    if (!info.damage) this.#deletions();
  }

  // deletions asks which items were deleted through the OpenAI routes: the events that
  // say so may be anywhere after them.
  async #deletions() {
    try {
      for (let after = 0; ;) {
        const page = await api.deletions(this.#id, after, this.#stop.signal);
        for (const event of page.events) this.#deleted(event);
        if (!page.more || !page.events.length) return;
        after = page.events.at(-1).seq;
      }
    } catch (error) {
      if (!this.#stop.signal.aborted && ![0, 401, 404, 410, 503].includes(error.status)) this.#hooks.error(error);
    }
  }

  #deleted(event) {
    for (const part of event.parts) if (part.type === "deletion") this.#window.deleted(part.seq, event.seq);
  }

  // jump shows the events around a seq, marks that one if requested, and reports if
  // there is none.
  async jump(seq, mark = false) {
    const target = Math.max(1, Math.min(seq, this.#readable()));
    if (!this.#window.row(target)) {
      const at = Math.max(0, Math.min(target - pageEvents / 2, this.#readable() - pageEvents));
      const page = await this.#load(at, pageEvents);
      if (!page) return;
      this.#window.following = false;
      this.#window.reset(page);
      // A page of large events may have been cut short before the target.
      if (target > this.#window.last && page.length) this.#window.reset(await this.#load(target - 1, pageEvents) ?? []);
    }
    const row = this.#window.row(target);
    if (row && (mark || target !== this.#readable())) {
      this.#follow(false);
      row.scrollIntoView({ block: row.offsetHeight > this.#scroller.clientHeight * 0.7 ? "start" : "center" });
      this.#window.pin(row);
    }
    if (mark) {
      this.#mark(target);
      if (seq > this.#readable()) this.#hooks.error({ message: `There is no event ${number(seq)} in this session.`, hint: `The last one is ${number(this.#readable())}.` });
    }
    this.#edges();
    this.#scrolled();
  }

  async toStart() {
    await this.jump(1);
    this.#follow(false);
    this.#scroller.scrollTop = 0;
    if (this.#window.row(1)) this.#window.pin(this.#window.row(1));
    this.#window.row(1)?.focus({ preventScroll: true });
  }

  async toEnd() {
    if (this.#window.last < this.#readable()) await this.jump(this.#readable());
    // Events that arrived during loading did not adjoin what was shown then.
    for (let i = 0; i < 5 && this.#window.last < this.#readable(); i++) await this.#more(1);
    this.#follow(true);
  }

  // step moves the mark to the next or previous event.
  async step(by) {
    const seen = this.#window.visible();
    const from = this.#marked >= seen.first && this.#marked <= seen.last ? this.#marked : by > 0 ? seen.first - 1 : seen.last + 1;
    const to = Math.max(1, Math.min(from + by, this.#readable()));
    if (!this.#window.row(to)) await this.#more(by);
    const row = this.#window.row(to);
    if (!row) return;
    this.#follow(false);
    this.#mark(to);
    row.scrollIntoView({ block: "nearest" });
    this.#window.pin(row);
    row.focus({ preventScroll: true });
    this.#scrolled();
  }

  // unfold opens the folds of the marked event, or closes them again.
  unfold() {
    const row = this.#window.row(this.#marked);
    if (row) toggleFolds(row);
    return Boolean(row);
  }

  // link copies a link to the marked event, or the first in sight.
  link() { return copyLink(this.#id, this.#window.row(this.#marked) ? this.#marked : this.#window.visible().first || 1); }

  // arrived takes an event from the stream, which delivers each once and in order.
  arrived(event) {
    this.#last = event.seq;
    this.#queue.push(event);
    if (this.#flushing) return;
    this.#flushing = true;
    // A hidden page paints no frames, but still has to keep up.
    if (document.hidden) setTimeout(() => this.#flush(), 250);
    else requestAnimationFrame(() => this.#flush());
  }

  // endsAt notes that nothing after a seq can be read.
  endsAt(seq) { this.#end = seq; }

  #readable() { return Math.min(this.#last, this.#end); }

  #flush() {
    this.#flushing = false;
    const events = this.#queue;
    this.#queue = [];
    if (this.#stop.signal.aborted || !events.length) return;
    for (const event of events) if (event.kind === "item_deleted") this.#deleted(event);
    const joins = this.#window.length === 0 ? events[0].seq === 1 : events[0].seq === this.#window.until + 1;
    if (!joins) {
      // The reader is elsewhere, and scrolling down will load them; or just got here.
      if (this.#window.following) this.toEnd();
    } else if (this.#window.following || this.#window.length + events.length <= rowsMax) {
      this.#window.append(events);
    }
    const newest = events.at(-1);
    announce(events.length === 1 ? `New: ${speaker(newest)}` : `${events.length} new events`);
    this.#edges();
    this.#scrolled();
  }

  async #load(after, limit) {
    try {
      const page = await api.events(this.#id, after, Math.max(1, Math.min(limit, this.#readable() - after)), this.#stop.signal);
      this.#step = page.bytes_received > pageBytes ? Math.max(1, this.#step >> 1) : Math.min(pageEvents, this.#step * 2);
      return page.events ?? [];
    } catch (error) {
      if (!this.#stop.signal.aborted) this.#hooks.error(error);
      return null;
    }
  }

  // more loads events after (1) or before (-1) the window.
  async #more(direction) {
    if (this.#loading || !this.#window.length) return;
    const { first, until: last } = this.#window;
    if (direction > 0 ? last >= this.#readable() : first <= 1) return;
    this.#loading = true;
    try { return await this.#loadMore(direction, first, last); } finally { this.#loading = false; }
  }

  async #loadMore(direction, first, last) {
    const after = direction > 0 ? last : Math.max(0, first - 1 - this.#step);
    const events = await this.#load(after, direction > 0 ? this.#step : first - 1 - after);
    if (this.#stop.signal.aborted || !events?.length) return;
    // The window may have moved since: only events that adjoin it are taken.
    if (direction > 0) {
      const fresh = events.filter((e) => e.seq > this.#window.until);
      if (fresh[0]?.seq === this.#window.until + 1) await this.#window.append(fresh);
    } else if (events.at(-1).seq === this.#window.first - 1) {
      await this.#window.prepend(events);
    } else if (events.at(-1).seq < this.#window.first - 1) {
      return this.#loadMore(-1, first, last); // large events: the page was cut short, and the next one is shorter
    }
    this.#edges();
    requestAnimationFrame(() => this.#scrolled());
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.#scroller;
    const below = scrollHeight - clientHeight - scrollTop;
    // Near the end; but if there is little to scroll, the beginning must not count as the end.
    const near = below <= Math.min(40, (scrollHeight - clientHeight) / 2);
    const atEnd = near && this.#window.last >= this.#readable();
    if (atEnd !== this.#window.following && !(this.#window.following && near)) this.#follow(atEnd, false);
    if (scrollTop < nearPixels) this.#more(-1);
    if (below < nearPixels) this.#more(1);
    this.#showPosition();
  }

  #follow(follow, scroll = true) {
    if (follow) this.#readTo = this.#last;
    else if (this.#window.following) this.#readTo = this.#last;
    this.#window.following = follow;
    if (follow && scroll) this.#window.toEnd();
    this.#showPosition();
  }

  #mark(seq) {
    this.#scroller.querySelector(".marked")?.classList.remove("marked");
    this.#marked = seq;
    this.#window.row(seq)?.classList.add("marked");
  }

  #edges() {
    const first = this.#window.first;
    this.#top.textContent = first > 1 ? "…" : this.#window.length ? "The beginning" : "";
    this.#top.classList.toggle("empty", !this.#window.length);
    if (!this.#window.length) this.#top.textContent = "Nothing was said here yet.";
  }

  #showPosition() {
    const following = this.#window.following;
    if (following) this.#readTo = this.#last;
    const fresh = this.#last - this.#readTo;
    this.#pill.hidden = following || this.#window.length === 0;
    const label = fresh > 0 ? `${number(fresh)} new` : "";
    if (this.#pill.dataset.label !== label || !this.#pill.firstChild) {
      this.#pill.dataset.label = label;
      this.#pill.replaceChildren(icon("down"), label);
      this.#pill.setAttribute("aria-label", fresh > 0 ? `${fresh} new events: go to the end` : "Go to the end");
    }
    const seen = this.#window.visible();
    if (!document.hidden && this.#window.length) this.#hooks.read(following ? this.#readable() : seen.last);
    const position = this.#window.length ? `${number(following ? this.#readable() : seen.last)} of ${number(this.#last)}` : "empty";
    if (position !== this.#position) this.#hooks.position(this.#position = position);
  }
}
