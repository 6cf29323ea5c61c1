// EventWindow keeps a run of consecutive events of a session in the page: rows come
// and go at both ends, the rest of the session stays on the server. So the page holds
// a few hundred rows whatever the length of the session, and what the reader looks at
// does not move when rows are added or taken away above it.

import { h } from "./dom.js";
import { answers, eventRow, place } from "./event.js";
import { Pairs } from "./pairs.js";

export const rowsMax = 240;

export class EventWindow {
  #scroller; #list; #rows = []; #context; #heights = new WeakMap(); #observer;
  following = false; // at the end, and to stay there

  constructor(scroller, id) {
    this.#scroller = scroller;
    this.#context = { id, pairs: new Pairs() };
    this.#list = h("div.rows");
    scroller.append(this.#list);
    // Images that are decoded and folds that open change heights later on.
    this.#observer = new ResizeObserver((entries) => this.#resized(entries));
    this.#observer.observe(scroller);
  }

  get first() { return this.#rows[0]?.event.seq ?? 0; }
  get last() { return this.#rows.at(-1)?.event.seq ?? 0; }
  get length() { return this.#rows.length; }

  row(seq) { return this.#rows[seq - this.first]?.el ?? null; }

  close() { this.#observer.disconnect(); }

  // reset shows these events and nothing else.
  reset(events) {
    this.#observer.disconnect();
    this.#observer.observe(this.#scroller);
    this.#context.pairs.clear();
    this.#rows = events.map((event) => this.#make(event));
    this.#list.replaceChildren(...this.#rows.map((r) => r.el));
    this.#place(0, this.#rows.length);
  }

  // append adds events behind the last one; what is too much goes from the top.
  append(events) {
    this.#keeping(() => {
      const from = this.#rows.length;
      for (const event of events) this.#rows.push(this.#make(event));
      this.#list.append(...this.#rows.slice(from).map((r) => r.el));
      this.#place(from, this.#rows.length);
      this.#drop(this.#rows.splice(0, Math.max(0, this.#rows.length - rowsMax)));
      this.#place(0, 1);
    });
  }

  // prepend adds events before the first one; what is too much goes from the end.
  prepend(events) {
    this.#keeping(() => {
      const made = events.map((event) => this.#make(event));
      this.#list.prepend(...made.map((r) => r.el));
      this.#rows.unshift(...made);
      this.#place(0, made.length + 1);
      this.#drop(this.#rows.splice(rowsMax));
    });
  }

  // visible are the seqs of the first and the last row in sight.
  visible() {
    const view = this.#scroller.getBoundingClientRect();
    const at = this.#firstBelow(view.top);
    if (at < 0) return { first: 0, last: 0 };
    let end = at;
    while (end + 1 < this.#rows.length && this.#rows[end + 1].el.getBoundingClientRect().top < view.bottom - 8) end++;
    return { first: this.#rows[at].event.seq, last: this.#rows[end].event.seq };
  }

  toEnd() { this.#scroller.scrollTop = this.#scroller.scrollHeight; }

  #make(event) {
    const el = eventRow(event, this.#context);
    this.#observer.observe(el);
    return { event, el };
  }

  #drop(rows) {
    for (const { el, event } of rows) {
      this.#observer.unobserve(el);
      this.#context.pairs.forget(event.seq);
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

  // keeping changes rows while what the reader looks at stays where it is.
  #keeping(change) {
    const at = this.#firstBelow(this.#scroller.getBoundingClientRect().top);
    const anchor = at >= 0 ? this.#rows[at].el : null;
    // The speech, not the row: a mark for the day may come or go above it.
    const top = () => anchor.lastElementChild.getBoundingClientRect().bottom;
    const before = anchor ? top() : 0;
    change();
    if (this.following) this.toEnd();
    else if (anchor?.isConnected) this.#scroller.scrollTop += top() - before;
    // What grew or shrank by this is accounted for: the observer must not do it again.
    for (const { el } of this.#rows) if (this.#heights.has(el)) this.#heights.set(el, el.offsetHeight);
  }

  #resized(entries) {
    if (this.following) {
      this.toEnd();
      return;
    }
    const top = this.#scroller.getBoundingClientRect().top;
    let grown = 0;
    for (const { target } of entries) {
      if (target === this.#scroller) continue;
      const height = target.offsetHeight;
      const before = this.#heights.get(target);
      this.#heights.set(target, height);
      if (before === undefined || before === height) continue;
      const box = target.getBoundingClientRect();
      if (box.bottom - (height - before) <= top) grown += height - before;
    }
    if (grown) this.#scroller.scrollTop += grown;
  }
}
