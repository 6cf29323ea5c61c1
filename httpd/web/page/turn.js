// TurnPanel shows who holds a session's turn, since when, and the last sign of life.

import { api } from "./api.js";
import { h } from "./dom.js";
import { holderName } from "./event.js";
import { ago, exactTime, span, ticking } from "./format.js";

const lookEvery = 5_000;

export class TurnPanel {
  #id; #stop = new AbortController(); #onChange; #timer; #shown = null;
  turn = null;

  constructor(id, onChange) {
    this.#id = id;
    this.#onChange = onChange;
    this.el = h("details.turn", { hidden: true }, h("summary"), h("dl"));
    document.addEventListener("visibilitychange", () => this.look(), { signal: this.#stop.signal });
  }

  close() {
    this.#stop.abort();
    clearTimeout(this.#timer);
  }

  // look asks the server. Renewals are not written to the log, so the page learns
  // of signs of life only by asking.
  async look() {
    clearTimeout(this.#timer);
    if (this.#stop.signal.aborted || document.hidden) return;
    try {
      const turn = await api.turn(this.#id, this.#stop.signal);
      if (this.#stop.signal.aborted) return;
      this.turn = turn;
      this.#show();
      this.#onChange(turn);
    } catch (error) {
      if (!this.#stop.signal.aborted) this.#failed(error);
    }
    clearTimeout(this.#timer);
    if (!this.#stop.signal.aborted) this.#timer = setTimeout(() => this.look(), this.turn ? lookEvery : 6 * lookEvery);
  }

  // failed shows errors that are not shown elsewhere: the stream reports when the
  // server or the session is gone, and an engine without turns has no panel.
  #failed(error) {
    if (error.status === 501) this.el.hidden = true;
    if ([0, 401, 404, 410, 501].includes(error.status)) return;
    this.#shown = null;
    this.el.hidden = false;
    this.el.firstChild.replaceChildren(h("span.dot"), h("span", null, `Who holds the turn is not known: ${error.message} ${error.hint}`));
    this.el.lastChild.replaceChildren();
  }

  #show() {
    const turn = this.turn;
    this.el.hidden = false;
    this.el.classList.toggle("held", turn !== null);
    const key = JSON.stringify(turn);
    if (key === this.#shown) return;
    this.#shown = key;
    const [summary, list] = this.el.children;
    if (!turn) {
      summary.replaceChildren(h("span.dot"), h("span", null, "The turn is free"));
      list.replaceChildren(h("dt", null, "Nobody holds it"), h("dd", null, "It is the right to run the agent loop here; whoever wants it may take it."));
      return;
    }
    summary.replaceChildren(
      h("span.dot"),
      h("span", null, h("bdi.name", null, holderName(turn.holder)), turn.exclusive ? " holds the turn alone" : " holds the turn"),
      h("span.quiet", null, " · ", ticking(h("span"), () => span(Date.now() - new Date(turn.since)))));
    const fact = (name, ...value) => [h("dt", null, name), h("dd", null, ...value)];
    list.replaceChildren(
      ...fact("Holder", h("bdi", null, [turn.holder?.label, turn.holder?.pid && `pid ${turn.holder.pid}`, turn.holder?.host && `on ${turn.holder.host}`].filter(Boolean).join(" · ") || "somebody unnamed")),
      ...fact("Since", exactTime(turn.since), " · ", h("a", { href: `#/s/${encodeURIComponent(this.#id)}/${turn.seq}` }, `event ${turn.seq}`)),
      ...(turn.renewed ? fact("Last sign of life", ticking(h("span"), () => (ago(turn.renewed) === "now" ? "just now" : `${ago(turn.renewed)} ago`))) : []),
      ...fact("Lost when silent for", span(turn.ttl_ms)),
      ...(turn.max_hold_ms ? fact("Held at most", span(turn.max_hold_ms)) : []),
      ...fact("Others", turn.exclusive ? "may write to the inbox only" : "may write meanwhile"),
      ...(turn.reason ? fact("Taken by force", h("q", null, turn.reason)) : []),
      ...fact("Grant", h("code", null, turn.grant)));
  }
}
