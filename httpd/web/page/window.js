// EventWindow keeps a run of consecutive events of a session in the page: rows are
// added and removed at both ends, the rest of the session stays on the server. So the
// page holds a few hundred rows whatever the length of the session, and what the
// reader looks at does not move when rows are added or removed above it.

import { api } from "./api.js";
import { h } from "./dom.js";
import { answers, eventRow, place } from "./event.js";
import { Pairs } from "./pairs.js";

export const rowsMax = 240;
// A few rows are made at a time, and then the browser may paint: making them all at
// once would block scrolling for several frames. How many depends on how long the
// last ones took.
const sliceRows = 8;
const sliceTime = 4; // ms

export class EventWindow {
  #scroller; #list; #rows = []; #anchor = null; #end = 0; #observer; #version = 0;
  #waiting = []; #appending = null; // events still to be appended
  #slice = sliceRows; // made at a time now
  following = false; // at the end, and staying there
  context;

  // The hooks are error(e) and changed(), when rows were added or removed.
  constructor(scroller, id, hooks) {
    this.#scroller = scroller;
    this.hooks = hooks;
    const wholes = new WeakMap();
    this.context = { id, pairs: new Pairs(), deleted: new Map(), error: hooks.error, fork: hooks.fork, whole: (event) => {
      if (!wholes.has(event)) wholes.set(event, api.whole(id, event.seq).catch((error) => { wholes.delete(event); throw error; }));
      return wholes.get(event);
    } };
    this.#list = h("div.rows");
    scroller.append(this.#list);
    // Rows out of view are laid out when they come near, pictures are decoded, folds
    // open: heights change later on.
    this.#observer = new ResizeObserver(() => this.#hold());
    this.#observer.observe(scroller);
  }

  get first() { return this.#rows[0]?.event.seq ?? 0; }
  get last() { return this.#rows.at(-1)?.event.seq ?? 0; }
  get length() { return this.#rows.length; }
  // until is the last seq, including events still to be appended.
  get until() { return this.#waiting.at(-1)?.seq ?? this.last; }
  get elements() { return this.#rows.map((r) => r.el); }

  row(seq) { return this.#rows[seq - this.first]?.el ?? null; }

  close() {
    this.#version++;
    this.#waiting = [];
    this.#observer.disconnect();
  }

  // reset shows these events and nothing else.
  reset(events) {
    this.#version++; // cancels what is still being added
    this.#waiting = [];
    this.#observer.disconnect();
    this.#observer.observe(this.#scroller);
    this.context.pairs.clear();
    this.#rows = events.map((event) => this.#make(event));
    this.#list.replaceChildren(...this.#rows.map((r) => r.el));
    this.#place(0, this.#rows.length);
    this.#anchor = null;
    this.hooks.changed();
  }

  // append adds events after the last one; surplus rows are removed at the top. Its
  // promise resolves when they are shown, or the window has moved elsewhere.
  append(events) {
    this.#waiting.push(...events);
    if (!this.#appending) this.#appending = this.#addWaiting().finally(() => { this.#appending = null; });
    return this.#appending;
  }

  // It goes on after a reset: what waits then was appended to the new rows.
  async #addWaiting() {
    while (this.#waiting.length) {
      if (this.following && this.#waiting.length > rowsMax) {
        // More than the window holds: the earlier ones would be removed at once.
        this.reset(this.#waiting.slice(-rowsMax));
        this.toEnd();
        return;
      }
      const slice = this.#waiting.splice(0, this.following ? 4 * sliceRows : this.#slice);
      this.#timed(slice.length, () => this.#keeping(() => this.#addBehind(slice)));
      this.hooks.changed();
      if (this.#waiting.length) await frame();
    }
  }

  // prepend adds events before the first one, adjoining ones first; surplus rows
  // are removed at the end.
  async prepend(events) {
    const version = this.#version;
    for (let end = events.length; end > 0;) {
      if (end < events.length) await frame();
      if (version !== this.#version || events[end - 1].seq !== this.first - 1) return;
      const slice = events.slice(Math.max(0, end - this.#slice), end);
      end -= slice.length;
      this.#timed(slice.length, () => this.#keeping(() => this.#addBefore(slice)));
      this.hooks.changed();
    }
  }

  // timed makes rows, and measures how many of them the next frame has time for.
  #timed(rows, make) {
    const began = performance.now();
    make();
    const each = (performance.now() - began) / rows;
    this.#slice = Math.max(1, Math.min(sliceRows, Math.round(sliceTime / Math.max(each, 0.1))));
  }

  #addBehind(events) {
    const from = this.#rows.length;
    for (const event of events) this.#rows.push(this.#make(event));
    this.#list.append(...this.#rows.slice(from).map((r) => r.el));
    this.#place(from, this.#rows.length);
    const much = this.#rows.length - rowsMax;
    if (much <= 0) return;
    this.#drop(this.#rows.splice(0, much));
    this.#place(0, 1);
  }

  #addBefore(events) {
    const made = events.map((event) => this.#make(event));
    this.#list.prepend(...made.map((r) => r.el));
    this.#rows.unshift(...made);
    this.#place(0, made.length + 1);
    // The events waiting to be appended would no longer adjoin.
    if (this.#rows.length > rowsMax) this.#waiting = [];
    this.#drop(this.#rows.splice(rowsMax));
  }

  // deleted notes that an event was deleted by another one, and redraws its row.
  deleted(seq, by) {
    if (this.context.deleted.has(seq)) return;
    this.context.deleted.set(seq, by);
    const i = seq - this.first;
    const old = this.#rows[i];
    if (!old) return;
    this.context.pairs.forget(seq);
    this.#observer.unobserve(old.el);
    const fresh = this.#make(old.event);
    fresh.el.className += old.el.classList.contains("marked") ? " marked" : "";
    this.#rows[i] = fresh;
    this.#keeping(() => old.el.replaceWith(fresh.el));
    this.#place(i, i + 1);
  }

  // visible returns the seqs of the first and the last row in view.
  visible() {
    const view = this.#scroller.getBoundingClientRect();
    const at = this.#firstBelow(view.top);
    if (at < 0) return { first: 0, last: 0 };
    let end = at;
    while (end + 1 < this.#rows.length && this.#rows[end + 1].el.getBoundingClientRect().top < view.bottom - 8) end++;
    return { first: this.#rows[at].event.seq, last: this.#rows[end].event.seq };
  }

  toEnd() {
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#end = this.#scroller.scrollTop;
  }

  #make(event) {
    const el = eventRow(event, this.context);
    this.#observer.observe(el);
    return { event, el };
  }

  #drop(rows) {
    for (const { el, event } of rows) {
      this.#observer.unobserve(el);
      this.context.pairs.forget(event.seq);
      el.remove();
    }
  }

  #place(from, to) {
    for (let i = from; i < to && i < this.#rows.length; i++) {
      let spoke = i - 1;
      while (spoke > 0 && i - spoke < 20 && answers(this.#rows[spoke].event)) spoke--;
      place(this.#rows[i].el, this.#rows[i].event, this.#rows[i - 1]?.event, this.#rows[spoke]?.event);
    }
  }

  // firstBelow finds the first row that reaches below a line.
  #firstBelow(y) {
    let low = 0, high = this.#rows.length;
    while (low < high) {
      const mid = (low + high) >> 1;
      if (this.#rows[mid].el.getBoundingClientRect().bottom > y + 1) high = mid; else low = mid + 1;
    }
    return low < this.#rows.length ? low : this.#rows.length - 1;
  }

  // keeping changes rows while what the reader looks at stays in place.
  #keeping(change) {
    if (!this.#anchor?.pinned) this.#setAnchor();
    change();
    this.#hold();
  }

  // scrolled notes that the reader has moved, unless the page itself scrolled.
  scrolled() {
    // At once: rows that get their height in this frame must not scroll back to the end.
    if (this.following && this.#scroller.scrollTop < this.#end - 2) this.following = false;
    if (this.#anchor?.pinned && Math.abs(this.#scroller.scrollTop - this.#anchor.at) < 2) return;
    this.#setAnchor();
  }

  // pin fixes a row in place until the reader scrolls: the rows around it get their
  // height when they are painted.
  pin(el) { this.#anchor = { el, top: this.#topOf(el), at: this.#scroller.scrollTop, pinned: true }; }

  // The anchor is the first row in view: where it is on the screen, and where the
  // scroller was then.
  #setAnchor() {
    const at = this.#firstBelow(this.#scroller.getBoundingClientRect().top);
    const el = at >= 0 ? this.#rows[at].el : null;
    this.#anchor = el && { el, top: this.#topOf(el), at: this.#scroller.scrollTop, pinned: false };
  }

  // topOf returns where the speech of a row begins in the scroller. That may move on
  // its own: a mark for the day may appear or disappear above it.
  #topOf(el) { return el.lastElementChild.previousElementSibling.getBoundingClientRect().top - this.#scroller.getBoundingClientRect().top; }

  // hold scrolls so that the anchor stays where it was.
  #hold() {
    if (this.following) {
      this.toEnd();
      return;
    }
    const anchor = this.#anchor;
    if (!anchor?.el.isConnected) return;
    const moved = this.#topOf(anchor.el) - anchor.top;
    if (Math.abs(moved) < 0.5) return;
    this.#scroller.scrollTop += moved;
    anchor.at = this.#scroller.scrollTop;
    anchor.top = this.#topOf(anchor.el); // less than intended at either end
  }
}

// frame waits for the next paint; a hidden page has none.
const frame = () => new Promise((done) => (document.hidden ? setTimeout(done) : requestAnimationFrame(() => done())));
