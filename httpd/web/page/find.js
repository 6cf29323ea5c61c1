// Find looks for a text in the session that is open: the server reads the session,
// the page moves from match to match and marks the places.

import { api } from "./api.js";
import { announce, h, icon } from "./dom.js";
import { number } from "./format.js";

const pause = 250; // after the last key
const matchesMax = 5000;
const rangesMax = 500;

export class Find {
  #id; #hooks; #input; #count; #matches = []; #at = -1; #asked = null; #timer; #done = true; #text = "";

  // The hooks are jump(seq), row(seq), rows(), from(), the seq in sight, error(e)
  // and closed().
  constructor(id, hooks) {
    this.#id = id;
    this.#hooks = hooks;
    this.#input = h("input", { type: "search", placeholder: "Find in this session", "aria-label": "Find in this session", autocomplete: "off", spellcheck: "false", enterkeyhint: "search" });
    this.#count = h("span.count", { role: "status" });
    const button = (shape, label, act) => h("button.quiet", { type: "button", title: label, "aria-label": label, onclick: act }, icon(shape));
    this.el = h("div.find", { role: "search", hidden: true }, icon("search"), this.#input, this.#count,
      button("up", "Previous match (Shift+Enter)", () => this.step(-1)), button("down", "Next match (Enter)", () => this.step(1)), button("cross", "Close (Esc)", () => this.close()));
    this.#input.addEventListener("input", () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#ask(), pause);
    });
    this.el.addEventListener("keydown", (e) => {
      if (e.key === "Escape") { e.preventDefault(); e.stopPropagation(); this.close(); }
      if (e.key === "Enter" && e.target === this.#input) { e.preventDefault(); this.#text === this.#wanted() ? this.step(e.shiftKey ? -1 : 1) : this.#ask(); }
    });
  }

  open() {
    this.el.hidden = false;
    this.#input.focus();
    this.#input.select();
    this.mark();
  }

  close() {
    if (this.el.hidden) return;
    this.#stop();
    this.el.hidden = true;
    this.#text = "";
    this.#matches = [];
    globalThis.CSS?.highlights?.delete("found");
    this.#hooks.closed();
  }

  #stop() {
    clearTimeout(this.#timer);
    this.#asked?.abort();
    this.#done = true;
  }

  #wanted() { return this.#input.value.trim(); }

  // ask begins to search for the text in the field.
  async #ask() {
    this.#stop();
    this.#text = this.#wanted();
    this.#matches = [];
    this.#at = -1;
    this.mark();
    this.#tell();
    if (!this.#text) return;
    const asked = (this.#asked = new AbortController());
    this.#done = false;
    const from = this.#hooks.from();
    let after = 0, more = true;
    try {
      while (more && this.#matches.length < matchesMax) {
        const page = await api.find(this.#id, this.#text, after, asked.signal);
        if (asked.signal.aborted) return;
        this.#matches.push(...page.matches.map((m) => m.seq));
        after = page.through;
        more = page.more;
        this.#tell(after, page.last_seq);
        // The first match after the reader's position; if there is none, the last.
        const next = this.#matches.findIndex((seq) => seq >= from);
        if (this.#at < 0 && (next >= 0 || !more && this.#matches.length)) await this.#go(next >= 0 ? next : this.#matches.length - 1);
      }
      this.#done = true;
      this.#tell();
      announce(`${this.#matches.length} events found`);
    } catch (error) {
      if (asked.signal.aborted) return;
      this.#done = true;
      this.#tell();
      this.#hooks.error(error);
    }
  }

  // step goes to the next or previous match, and wraps around.
  step(by) {
    const n = this.#matches.length;
    if (n === 0) return;
    return this.#go((this.#at + by + n) % n);
  }

  async #go(at) {
    this.#at = at;
    this.#tell();
    await this.#hooks.jump(this.#matches[at]);
    this.#reveal(this.#hooks.row(this.#matches[at]));
    this.mark();
  }

  // reveal opens the folds of a row until the text can be seen, and scrolls it into
  // view.
  #reveal(row) {
    if (!row) return;
    const shows = () => row.innerText.toLowerCase().includes(this.#text.toLowerCase());
    if (!shows()) for (const d of row.querySelectorAll("details")) d.open = true;
    if (!shows()) for (const b of row.querySelectorAll('button.unfold[aria-expanded="false"]')) b.click();
    requestAnimationFrame(() => {
      this.mark();
      const range = places(row, this.#text, 1)[0];
      if (range) intoSight(range);
    });
  }

  // mark colours the places in the rows that are shown. The browser paints them; the
  // elements do not change.
  mark() {
    const all = globalThis.CSS?.highlights;
    if (!all || this.el.hidden) return;
    if (!this.#text) { all.delete("found"); return; }
    const ranges = [];
    for (const row of this.#hooks.rows()) {
      ranges.push(...places(row, this.#text, rangesMax - ranges.length));
      if (ranges.length >= rangesMax) break;
    }
    all.set("found", new Highlight(...ranges));
  }

  #tell(through = 0, last = 0) {
    const n = this.#matches.length;
    const found = n === 0 ? "" : `${this.#at < 0 ? "" : `${number(this.#at + 1)} of `}${number(n)}${n >= matchesMax ? "+" : ""}`;
    this.#count.textContent = this.#done ? (this.#text ? found || "Nothing found" : "") : `${found} ${through ? `… ${Math.floor(100 * through / Math.max(1, last))} %` : "…"}`.trim();
    this.el.classList.toggle("working", !this.#done);
  }
}

// intoSight scrolls everything that a place is in, until it can be seen.
function intoSight(range) {
  for (let el = range.startContainer.parentElement; el; el = el.parentElement) {
    if (el.scrollHeight <= el.clientHeight + 1 || !/auto|scroll/.test(getComputedStyle(el).overflowY)) continue;
    const place = range.getBoundingClientRect(), view = el.getBoundingClientRect();
    if (place.top < view.top + 40 || place.bottom > view.bottom - 40) el.scrollTop += place.top - view.top - view.height / 2;
  }
}

// places returns where a text is in an element, each as a range.
function places(el, text, most) {
  const out = [];
  const wanted = text.toLowerCase();
  const walker = document.createTreeWalker(el, NodeFilter.SHOW_TEXT);
  while (out.length < most && walker.nextNode()) {
    const node = walker.currentNode;
    const data = node.data.toLowerCase();
    if (data.length !== node.data.length) continue;
    for (let at = data.indexOf(wanted); at >= 0 && out.length < most; at = data.indexOf(wanted, at + wanted.length)) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, at + wanted.length);
      out.push(range);
    }
  }
  return out;
}
