// Composer appends a message to a session. What it sends carries an idempotency
// key: a retry after a lost answer stores nothing twice.

import { api, newKey } from "./api.js";
import { h, icon } from "./dom.js";

const invitation = "Write a message…";
const authorKey = "hansard.author";
const drafts = new Map(); // session → { text, key, inbox } that is not sent yet

const savedAuthor = () => { try { return localStorage.getItem(authorKey) ?? ""; } catch { return ""; } };

export class Composer {
  #id; #hooks; #text; #author; #send; #inbox; #say; #key = null; #sending = false; #turn = null;

  // The hooks are sent(receipt) and leave(), called to go back to the transcript.
  constructor(id, hooks) {
    this.#id = id;
    this.#hooks = hooks;
    this.#text = h("textarea", { rows: "1", placeholder: invitation, "aria-label": "Message", enterkeyhint: "enter" });
    this.#author = h("input.author", { type: "text", placeholder: "anonymous", "aria-label": "Your name, the author of what you write", maxlength: "100", autocomplete: "nickname" });
    this.#author.value = savedAuthor();
    this.#inbox = h("input", { type: "checkbox" });
    this.#send = h("button.send", { type: "submit", title: "Send (Ctrl+Enter)" }, icon("up"), h("span.unseen", null, "Send"));
    this.#say = h("div.say", { role: "status" });
    this.el = h("form.composer", { "aria-label": "Write a message", onsubmit: (e) => { e.preventDefault(); this.send(); } },
      this.#say,
      h("div.field", null, this.#text, h("div.tools", null,
        h("label.as", null, "as ", this.#author),
        h("label.inbox-choice", { title: "Leave it to the holder of the turn to take up" }, this.#inbox, " inbox"),
        h("span.keys", null, "Ctrl+Enter"),
        this.#send)));
    this.#text.addEventListener("input", () => this.#edited());
    this.#inbox.addEventListener("change", () => this.#edited());
    this.#author.addEventListener("input", () => {
      this.#edited();
      try { localStorage.setItem(authorKey, this.#author.value); } catch { /* it is asked for again next time */ }
    });
    this.el.addEventListener("keydown", (e) => {
      if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) { e.preventDefault(); this.send(); }
      if (e.key === "Escape") { e.stopPropagation(); document.activeElement?.blur(); this.#hooks.leave(); }
    });
    const draft = drafts.get(id);
    if (draft) {
      this.#text.value = draft.text;
      this.#inbox.checked = draft.inbox;
      this.#key = draft.key;
    }
    requestAnimationFrame(() => this.#fit());
  }

  focus() { this.#text.focus(); }

  // held takes the state of the turn: an exclusive one admits only the inbox.
  held(turn) {
    const before = this.#turn?.exclusive ?? false;
    this.#turn = turn;
    const now = turn?.exclusive ?? false;
    if (now === before) return;
    this.el.classList.toggle("inbox-only", now);
    if (!now) { this.#inbox.checked = false; this.#edited(); }
  }

  // refuse stops taking messages, and says why; accept takes them again.
  refuse(reason) {
    this.#text.disabled = this.#send.disabled = this.#author.disabled = true;
    this.#text.placeholder = reason;
  }

  accept() {
    this.#text.disabled = this.#send.disabled = this.#author.disabled = false;
    this.#text.placeholder = invitation;
  }

  #edited() {
    this.#key = null; // other content is another message
    this.#say.replaceChildren();
    this.#remember();
    this.#fit();
  }

  #remember() {
    if (this.#text.value) drafts.set(this.#id, { text: this.#text.value, inbox: this.#inbox.checked, key: this.#key });
    else drafts.delete(this.#id);
  }

  #fit() {
    this.#text.style.height = "auto";
    const needs = this.#text.scrollHeight, most = innerHeight * 0.4;
    this.#text.style.height = `${Math.min(needs, most)}px`;
    this.#text.style.overflowY = needs > most ? "auto" : "hidden";
  }

  async send(inbox = this.#inbox.checked) {
    const text = this.#text.value;
    if (this.#sending || text.trim() === "") return;
    if (inbox !== this.#inbox.checked) { this.#inbox.checked = inbox; this.#key = null; }
    this.#key ??= newKey();
    this.#remember();
    const author = this.#author.value.trim();
    const batch = { events: [{ kind: "message", role: "user", ...(author ? { author } : {}), data: text, ...(inbox ? { inbox: true } : {}) }] };
    this.#sending = true;
    this.#send.disabled = true;
    this.#tell("Sending…");
    try {
      const receipt = await this.#append(batch);
      if (this.#text.value === text) this.#text.value = "";
      this.#edited();
      this.#hooks.sent(receipt);
    } catch (error) {
      this.#failed(error);
    } finally {
      this.#sending = false;
      this.#send.disabled = false;
    }
  }

  // append tries a few times: with the key a retry is harmless.
  async #append(batch) {
    for (let attempt = 1; ; attempt++) {
      try {
        return await api.append(this.#id, batch, this.#key);
      } catch (error) {
        const passing = error.status === 0 || error.status === 502 || error.status === 504;
        if (!passing || attempt >= 4) throw error;
        this.#tell("No answer yet; trying again. It will not be stored twice.");
        await new Promise((done) => setTimeout(done, 400 * 2 ** attempt));
      }
    }
  }

  #failed(error) {
    const actions = [];
    if (error.status === 423) actions.push(h("button.action", { type: "button", onclick: () => this.send(true) }, "Send to the inbox"));
    else if (error.status !== 422 && error.status !== 413) actions.push(h("button.action", { type: "button", onclick: () => this.send() }, "Try again"));
    const hint = error.status === 423 ? "The holder keeps the session to itself. In the inbox your message is stored at once, and left to the holder to take up."
      : error.status === 0 ? "Your message is still here. Trying again does not store it twice." : error.hint;
    this.#tell(error.message, hint, actions);
  }

  #tell(text, hint = "", actions = []) {
    this.#say.replaceChildren(h("span", null, text), hint && h("span.hint", null, hint), ...actions);
  }
}
