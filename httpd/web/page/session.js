// SessionView is one open session: its head, the turn, the transcript and the
// composer.

import { api, newKey, stringify } from "./api.js";
import { Composer } from "./composer.js";
import { deleteSession, editSession, exportSession } from "./dialogs.js";
import { announce, copy, copyButton, h, icon, notice, toast } from "./dom.js";
import { Follower } from "./follow.js";
import { fork, forksOf, lineage } from "./forks.js";
import { exactTime, size, ticking } from "./format.js";
import { Transcript } from "./transcript.js";
import { TurnPanel } from "./turn.js";
import { codeBox } from "./markdown.js";
import { Menu } from "./menu.js";
import { printSession } from "./print.js";
import { markSeen } from "./seen.js";

const repairLook = 3_000; // how often a damaged session is checked

export class SessionView {
  #id; #hooks; #stop = new AbortController(); #follower = null; #transcript; #turn; #composer; #state; #title; #about; #banner; #position; #document; #fresh = null; #info = null; #rights; #opening = false; #wanted = 0;

  // The hooks are back(), label(text), live(), when the server is reachable again,
  // read(), when something was read, and changed(), when the session changed. The
  // rights are a set.
  constructor(id, rights, hooks) {
    this.#rights = rights;
    this.#id = id;
    this.#hooks = hooks;
    this.#title = h("h2.title", { tabindex: "-1" }, h("bdi", null, id));
    this.#about = h("div.about");
    this.#state = h("button.state-chip", { type: "button", title: "Try again now", onclick: () => this.#follower?.retryNow() });
    this.#position = h("button.position", { type: "button", title: "Go to a seq", onclick: () => this.askSeq() });
    this.#document = h("div.document", { hidden: true });
    this.#banner = h("div.banner", { hidden: true, role: "alert" });
    this.#transcript = new Transcript(id, { error: notice, fork: rights.has("append") && rights.has("read") ? (seq) => this.fork(seq) : null, position: (text) => { this.#position.textContent = text; }, read: (seq) => { if (markSeen(id, seq)) hooks.read(); } });
    this.#turn = new TurnPanel(id, (turn) => this.#composer.held(turn));
    this.#composer = new Composer(id, { sent: () => this.#transcript.toEnd(), leave: () => this.focus() });
    this.el = h("section.session", { "aria-label": `Session ${id}` },
      h("header.session-head", null,
        h("button.back", { type: "button", "aria-label": "Back to the sessions", onclick: hooks.back }, icon("back")),
        h("div.naming", null, this.#title, this.#about),
        h("div.status", null, this.#state, this.#position),
        new Menu("More (m)", () => this.#choices()).el),
      this.#document, this.#turn.el, this.#banner, this.#transcript.el, rights.has("append") && this.#composer.el);
  }

  // choices returns the entries of the menu that the rights allow.
  #choices() {
    const may = (right) => this.#rights.has(right) && this.#info;
    return [
      ["search", "Find", "f", () => this.find()],
      ["down", "Go to an event", ":", () => this.askSeq()],
      ["link", "Copy a link", "", async () => toast(await copy(`${location.origin}${location.pathname}#/s/${encodeURIComponent(this.#id)}`) ? "The link is copied." : "The browser did not let the page copy.")],
      this.#info && ["file", "Print", "Ctrl P", () => this.print()],
      may("read") && ["down", "Export", "", () => exportSession(this.#info)],
      may("append") && may("read") && this.#info.last_seq > 0 && ["fork", "Fork", "", () => this.fork(this.#transcript.last)],
      may("append") && ["braces", "Title and labels", "e", () => this.edit()],
      may("append") && ["file", this.#isArchived ? "Take out of the archive" : "Archive", "", () => this.#archive(!this.#isArchived)],
      may("admin") && ["trash", "Delete", "", () => deleteSession(this.#info, () => { this.#hooks.changed(); this.#hooks.back(); })],
    ].filter(Boolean);
  }

  get #isArchived() { return Object.hasOwn(this.#info?.labels ?? {}, "archived"); }

  // archive archives the session, or undoes that.
  async #archive(yes) {
    try {
      await api.change(this.#id, { labels: { archived: yes ? "true" : null } }, newKey());
      toast(yes ? "The session is archived." : "The session is in the list again.");
    } catch (error) {
      notice(error.message);
    }
    this.#refresh();
    this.#hooks.changed();
  }

  close() {
    this.#stop.abort();
    this.#follower?.stop();
    this.#transcript.close();
    this.#turn.close();
    clearTimeout(this.#fresh);
  }

  focus() { this.#transcript.focus(); }
  write() { if (this.#rights.has("append")) this.#composer.focus(); }
  find() { this.#transcript.find(); }
  unfold() { return this.#transcript.unfold(); }
  link() { return this.#transcript.link(); }
  print() { if (this.#info) return printSession(this.#info, this.#transcript.context); }
  edit() { if (this.#info && this.#rights.has("append")) editSession(this.#info, () => { this.#refresh(); this.#hooks.changed(); }); }
  // fork makes a session that continues from an event, and opens it.
  async fork(seq) {
    try {
      const made = await fork(this.#id, seq);
      toast(`Forked at event ${made.parent.at}.`);
      this.#hooks.changed();
      location.hash = `#/s/${encodeURIComponent(made.id)}`;
    } catch (error) {
      notice(error);
    }
  }

  menu() { this.el.querySelector(".menu-button").click(); }
  toStart() { return this.#transcript.toStart(); }
  toEnd() { return this.#transcript.toEnd(); }
  step(by) { return this.#transcript.step(by); }
  // jump goes to an event. While the session is being opened, open does that:
  // otherwise it would show the end of the session instead.
  jump(seq) {
    this.#wanted = seq;
    return this.#opening ? undefined : this.#transcript.jump(seq, true);
  }

  async open(seq) {
    this.#wanted = seq;
    this.#opening = true;
    this.#connection({ name: "connecting" });
    let info;
    try {
      info = await api.session(this.#id, this.#stop.signal);
    } catch (error) {
      if (this.#stop.signal.aborted) return;
      this.#connection({ name: "ended" });
      this.#refused(error, () => this.open(this.#wanted));
      return;
    }
    if (this.#stop.signal.aborted) return;
    this.#banner.hidden = true;
    this.#describe(info);
    await this.#transcript.open(info, 0);
    this.#opening = false;
    if (this.#wanted) await this.#transcript.jump(this.#wanted, true);
    if (this.#stop.signal.aborted) return;
    if (info.damage) {
      this.#fresh = setTimeout(() => this.#repaired(), repairLook);
      return;
    }
    this.#turn.look();
    this.#follower = new Follower(this.#id, info.created, info.last_seq, (event) => this.#arrived(event), (state) => this.#connection(state));
  }

  // repaired reopens a damaged session as soon as it is sound.
  async #repaired() {
    try {
      const info = await api.session(this.#id, this.#stop.signal);
      if (!info.damage) {
        this.#composer.accept();
        this.#transcript.endsAt(Infinity);
        return this.open(0);
      }
    } catch { /* the list shows that the server is unreachable */ }
    if (!this.#stop.signal.aborted) this.#fresh = setTimeout(() => this.#repaired(), repairLook);
  }

  #arrived(event) {
    this.#transcript.arrived(event);
    if (event.kind === "turn") this.#turn.look();
    if (event.patch) this.#refresh();
  }

  // refresh reloads the metadata, once for many changes.
  #refresh() {
    clearTimeout(this.#fresh);
    this.#fresh = setTimeout(async () => {
      try {
        const info = await api.session(this.#id, this.#stop.signal);
        if (!this.#stop.signal.aborted) this.#describe(info);
      } catch (error) {
        // The stream reports when the server or the session is gone.
        if (!this.#stop.signal.aborted && ![0, 401, 404, 410].includes(error.status)) notice(error);
      }
    }, 150);
  }

  #describe(info) {
    this.#info = info;
    const name = info.title || info.preview || info.id;
    this.#title.replaceChildren(h("bdi", null, name));
    document.title = `${name} · Hansard`;
    this.#about.replaceChildren(
      h("code.id", null, info.id), copyButton(() => info.id, "Copy the id"),
      ...Object.entries(info.labels ?? {}).map(([k, v]) => h("button.label", { type: "button", title: `Sessions with ${k}=${v}`, onclick: () => this.#hooks.label(`${k}=${v}`) }, h("bdi", null, `${k}=${v}`))),
      ...(info.state === null || info.state === undefined ? [] : [this.#stateButton()]),
      h("span.quiet", { title: `created ${exactTime(info.created)}` }, size(info.bytes)), ...lineage(info));
    const about = this.#about;
    forksOf(info.id, this.#stop.signal).then((forks) => { if (!about.querySelector(".forks-of") && this.#info === info) about.append(...forks); });
    this.#document.replaceChildren(codeBox(stringify(info.state ?? null, 2), "json"));
    if (info.damage) this.#damaged(info.damage);
  }

  // stateButton shows and hides the state document.
  #stateButton() {
    const button = h("button.label", { type: "button", title: "The state document of the session", onclick: () => show(this.#document.hidden) }, icon("braces"), " state");
    const show = (yes) => {
      this.#document.hidden = !yes;
      button.setAttribute("aria-expanded", String(yes));
    };
    show(!this.#document.hidden);
    return button;
  }

  #damaged(damage) {
    const where = [damage.line && `line ${damage.line}`, `byte ${damage.offset}`].filter(Boolean).join(", ");
    const command = (text) => h("span.command", null, h("code", null, text), copyButton(() => text, "Copy the command"));
    this.#banner.hidden = false;
    this.#banner.className = "banner bad";
    this.#banner.replaceChildren(icon("warning"), h("div", null,
      h("p", null, h("strong", null, "This session is damaged"), ` at ${where}: ${damage.reason}.`),
      h("p", null, damage.safe_seq > 0 ? `Events up to ${damage.safe_seq} are safe and shown here. ` : "No event before the damage can be read. ", "Nothing can be added to it, and nothing was deleted. Look at it, then make a sound copy; the old bytes are kept:"),
      h("p.commands", null, command(`hansard verify ${this.#id}`), command(`hansard repair ${this.#id}`))));
    this.#composer.refuse("A damaged session takes no messages");
    this.#transcript.endsAt(damage.safe_seq);
    this.#follower?.stop();
    this.#connection({ name: "damaged" });
  }

  // refused shows, in place of the session, why it can't be shown.
  #refused(error, again) {
    const gone = error.status === 404 || error.status === 410;
    // The server's hint is for programs that would create it.
    const hint = error.status === 404 ? "Check the id; the list has all sessions that you may read." : error.hint;
    this.#banner.hidden = false;
    this.#banner.className = "banner" + (gone ? "" : " bad");
    this.#banner.replaceChildren(icon("warning"), h("div", null,
      h("p", null, h("strong", null, error.message)), hint && h("p", null, hint),
      !gone && h("p", null, h("button.action", { type: "button", onclick: again }, "Try again"))));
    if (gone) this.#composer.refuse("There is nothing to write to");
  }

  #connection(state) {
    const chip = this.#state;
    const say = { connecting: "connecting…", live: "live", resting: "resting", ended: "stopped", damaged: "damaged" };
    if (chip.dataset.state !== state.name) announce(`Transcript: ${say[state.name] ?? "the connection is lost"}`);
    chip.dataset.state = state.name;
    chip.disabled = state.name !== "waiting";
    if (state.name === "waiting") {
      chip.replaceChildren(h("span.dot"), ticking(h("span"), () => {
        const left = Math.ceil((state.until - Date.now()) / 1000);
        return left > 0 ? `reconnecting in ${left} s` : "reconnecting…";
      }));
      chip.title = `${state.error?.message ?? "The connection ended."} Click to try now.`;
      if (state.error?.status === 503) this.#refresh(); // it may have been found damaged
      return;
    }
    if (state.name === "live") this.#hooks.live();
    chip.title = state.name === "live" ? "New events appear as they are stored" : "";
    chip.replaceChildren(h("span.dot"), say[state.name]);
    if (state.name === "ended" && state.error && state.error.status !== 401) this.#refused(state.error, () => location.reload());
  }

  askSeq() {
    if (!this.#position.isConnected) return;
    const input = h("input.seq-input", { type: "number", min: "1", max: String(this.#transcript.last), placeholder: "seq", "aria-label": "Go to event number" });
    let over = false; // removing the field blurs it, which would call done again
    const done = () => {
      if (over) return;
      over = true;
      input.replaceWith(this.#position);
    };
    input.addEventListener("keydown", (e) => {
      e.stopPropagation();
      if (e.key === "Escape") done();
      if (e.key === "Enter" && input.value) {
        const seq = Math.max(1, Math.floor(Number(input.value)) || 1);
        done();
        const hash = `#/s/${encodeURIComponent(this.#id)}/${seq}`;
        if (location.hash === hash) this.jump(seq); else location.hash = hash;
      }
    });
    input.addEventListener("blur", done);
    this.#position.replaceWith(input);
    input.focus();
  }
}
