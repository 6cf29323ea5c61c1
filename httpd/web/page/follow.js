import { api, auth, parseParts, serverSent, ServerError } from "./api.js";

// Follower passes on the events of a session past a seq as they arrive, each once
// and in order, across lost connections: it always asks for the events after the
// last one it passed on. The session is the one that was created then: another may
// have its id by the time it connects again.

const firstPause = 500;
const longestPause = 15_000;
// The server sends a heartbeat more often than this; silence is a dead connection
// (a laptop that slept, a network that went away).
const silenceMax = 60_000;
const unseenMax = 30_000; // how long a hidden page stays connected

export class Follower {
  #id; #created; #last; #onEvent; #onState; #stop = new AbortController(); #failures = 0; #hurry = () => {}; #rest; #connecting;

  // onState gets { name: "connecting" | "live" | "waiting" | "resting" | "ended", … }.
  constructor(id, created, last, onEvent, onState) {
    this.#id = id;
    this.#created = created;
    this.#last = last;
    this.#onEvent = onEvent;
    this.#onState = onState;
    addEventListener("online", () => this.retryNow(), { signal: this.#stop.signal });
    document.addEventListener("visibilitychange", () => this.#seen(), { signal: this.#stop.signal });
    this.#seen();
    this.#run();
  }

  stop() {
    clearTimeout(this.#rest);
    this.#stop.abort();
  }

  // seen closes the connection while the page is hidden: a browser has only six per
  // server, and a tab that is shown again continues where it was.
  #seen() {
    clearTimeout(this.#rest);
    if (document.hidden) this.#rest = setTimeout(() => this.#connecting?.abort(), unseenMax);
    else this.retryNow();
  }

  // retryNow ends the pause before the next attempt.
  retryNow() { this.#hurry(); }

  async #run() {
    const stopped = this.#stop.signal;
    while (!stopped.aborted) {
      let error = null;
      try {
        await this.#connection();
      } catch (e) {
        error = e;
      }
      if (stopped.aborted) return;
      if (document.hidden) {
        this.#onState({ name: "resting" });
        await this.#pause(2 ** 31 - 1); // until the page is shown
        continue;
      }
      // These refusals do not change when asked again.
      if (error instanceof ServerError && [400, 401, 403, 404, 410].includes(error.status) || error?.final) {
        this.#onState({ name: "ended", error });
        return;
      }
      const pause = Math.min(longestPause, firstPause * 2 ** this.#failures++) * (0.75 + Math.random() / 2);
      this.#onState({ name: "waiting", until: Date.now() + pause, error });
      await this.#pause(pause);
    }
  }

  #pause(ms) {
    return new Promise((done) => {
      const timer = setTimeout(() => this.#hurry(), ms);
      this.#hurry = () => {
        clearTimeout(timer);
        this.#stop.signal.removeEventListener("abort", this.#hurry);
        this.#hurry = () => {};
        done();
      };
      this.#stop.signal.addEventListener("abort", this.#hurry);
    });
  }

  async #connection() {
    const connection = (this.#connecting = new AbortController());
    const signal = AbortSignal.any([this.#stop.signal, connection.signal]);
    let watchdog;
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => connection.abort(), silenceMax);
    };
    this.#onState({ name: "connecting" });
    alive();
    try {
      const response = await api.stream(this.#id, this.#created, this.#last, signal);
      this.#onState({ name: "live" });
      for await (const message of serverSent(response, () => { alive(); this.#failures = 0; })) {
        if (signal.aborted) return;
        this.#take(message);
      }
    } finally {
      clearTimeout(watchdog);
      connection.abort();
    }
  }

  #take(message) {
    const value = parseParts(message.data);
    if (message.event === "error" || message.event === "problem" || value?.seq === undefined) {
      if (value?.status === undefined && value?.detail === undefined) return; // an unknown message
      const error = new ServerError(value.status ?? 0, value);
      error.final = [401, 403, 404, 410].includes(error.status);
      if (error.status === 401) auth.refused(error); // the token was withdrawn
      throw error;
    }
    const seq = Number(value.seq);
    if (seq <= this.#last) return; // had it
    if (seq !== this.#last + 1) {
      // Never show a transcript with a hole: ask again from the last one.
      throw new ServerError(0, { detail: `Event ${this.#last + 1} was missing from the stream.` });
    }
    this.#last = seq;
    this.#onEvent(value);
  }
}
