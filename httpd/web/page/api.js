// The server: requests with the token, errors with their hints, and streams.

import { cookieLogin } from "./login.js";

const tokenKey = "hansard.token";
let memory = null; // the token, if the browser denies storage

export const auth = {
  get token() {
    try { return sessionStorage.getItem(tokenKey) ?? localStorage.getItem(tokenKey) ?? memory; } catch { return memory; }
  },
  set token(value) {
    memory = value;
    try {
      sessionStorage.removeItem(tokenKey);
      if (value) localStorage.setItem(tokenKey, value);
      else localStorage.removeItem(tokenKey);
    } catch { /* then it lasts as long as the page */ }
  },
  // keep stores a token, for this browser or only for this tab.
  keep(value, here) {
    if (!here) { auth.token = value; return; }
    try { sessionStorage.setItem(tokenKey, value); } catch { memory = value; }
  },
  refused: () => {}, // called when the server rejects the token
};

// isToken reports whether a header can carry a text.
export const isToken = (text) => /^[\x21-\x7e]+$/.test(text);

// ServerError is an answer other than the requested one. Status 0: there was no
// answer.
export class ServerError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the server answered ${status}`);
    this.status = status;
    this.problem = problem;
    this.hint = problem.hint ?? "";
  }
}

const unreachable = () => new ServerError(0, {
  detail: "The server can't be reached.",
  hint: "Is hansard serve still running? The page retries automatically.",
});

// parse reads JSON and preserves the spelling of numbers that JavaScript would
// change, so that what is shown is what is stored. It does not recurse: data may be
// nested deeper than the stack.
export function parse(text) {
  if (!JSON.rawJSON) return JSON.parse(text);
  const mark = `number ${crypto.getRandomValues(new Uint32Array(2)).join()} `; // nobody can have written this
  const marked = markNumbers(text, mark);
  const value = JSON.parse(marked);
  if (marked === text) return value;
  const whole = { value };
  for (const left = [whole]; left.length;) {
    const at = left.pop();
    for (const k of Object.keys(at)) {
      const v = at[k];
      if (typeof v === "string" && v.startsWith(mark)) {
        const exact = JSON.rawJSON(v.slice(mark.length));
        if (k === "__proto__") Object.defineProperty(at, k, { value: exact }); else at[k] = exact;
      } else if (v !== null && typeof v === "object") left.push(v);
    }
  }
  return whole.value;
}

// markNumbers turns the numbers whose spelling would change into strings.
function markNumbers(text, mark) {
  const next = /["\d-]/g, number = /-?\d[\d.eE+-]*/y;
  const out = [];
  let copied = 0;
  for (let m; (m = next.exec(text));) {
    if (m[0] === '"') {
      next.lastIndex = stringEnd(text, m.index + 1);
      continue;
    }
    number.lastIndex = m.index;
    const found = number.exec(text)?.[0] ?? m[0];
    next.lastIndex = m.index + found.length;
    if (String(Number(found)) === found) continue;
    out.push(text.slice(copied, m.index), '"', mark, found, '"');
    copied = next.lastIndex;
  }
  return copied === 0 ? text : out.join("") + text.slice(copied);
}

// stringEnd is the position after the quote that ends the string that i is in.
function stringEnd(text, i) {
  for (;;) {
    const quote = text.indexOf('"', i);
    if (quote < 0) return text.length;
    let slashes = 0;
    while (text[quote - 1 - slashes] === "\\") slashes++;
    if (slashes % 2 === 0) return quote + 1;
    i = quote + 1;
  }
}

// parseParts reads events in parts. All numbers in them are the server's own, except
// those in a patch. The time shown is when the event happened, if its writer gave it.
export function parseParts(text) {
  const value = text.includes('"patch":') ? parse(text) : JSON.parse(text);
  for (const event of value?.events ?? [value]) {
    if (event?.at) [event.stored, event.time] = [event.time, event.at];
  }
  return value;
}

// stringify writes JSON, with numbers spelt as parse read them.
export const stringify = (value, indent) => JSON.stringify(value, null, indent) ?? "";

async function answer(path, { method = "GET", body, headers = {}, signal } = {}) {
  let response;
  const cookie = auth.token === cookieLogin;
  try {
    response = await fetch(path, {
      method, signal, cache: "no-store", credentials: cookie ? "same-origin" : "omit",
      headers: {
        ...(cookie ? {} : { Authorization: `Bearer ${auth.token ?? ""}` }),
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw unreachable();
  }
  if (response.ok) return response;
  let problem = {};
  try { problem = parse(await response.text()) ?? {}; } catch { /* not JSON: the status has to be enough */ }
  const error = new ServerError(response.status, problem);
  if (response.status === 401) auth.refused(error);
  throw error;
}

// request asks for JSON. Answers that contain numbers from clients are read exactly.
export async function request(path, options) {
  const response = await answer(path, options);
  let text;
  try { text = await response.text(); } catch (error) {
    if (options?.signal?.aborted) throw error;
    throw unreachable();
  }
  if (text === "") return null;
  const value = options?.parts ? parseParts(text) : parse(text);
  if (value && typeof value === "object") Object.defineProperty(value, "bytes_received", { value: text.length });
  return value;
}

const session = (id) => `/v1/sessions/${encodeURIComponent(id)}`;

// fileName returns the name in a Content-Disposition; "" if it has none.
function fileName(disposition) {
  const coded = /filename\*=utf-8''([^;]+)/i.exec(disposition);
  if (coded) return decodeURIComponent(coded[1]);
  return /filename="?([^";]+)/.exec(disposition)?.[1] ?? "";
}

export const api = {
  // whoami returns what the token allows.
  whoami: () => request("/v1/whoami"),
  sessions: ({ q, labels, archived = "no", cursor, limit = 50 }, signal) => {
    const query = new URLSearchParams({ limit, archived, preview: "true" });
    if (q) query.set("q", q);
    if (cursor) query.set("cursor", cursor);
    for (const label of labels ?? []) query.append("label", label);
    return request(`/v1/sessions?${query}`, { signal });
  },
  session: (id, signal) => request(`${session(id)}?preview=true`, { signal }),
  fork: (id, given) => request(`${session(id)}/fork`, { method: "POST", body: given }),
  forks: (id, limit, signal) => request(`/v1/sessions?${new URLSearchParams({ parent: id, limit })}`, { signal }),
  create: (given) => request("/v1/sessions", { method: "POST", body: given }),
  change: (id, patch, key) => request(session(id), { method: "PATCH", body: patch, headers: { "Idempotency-Key": key } }),
  remove: (id) => request(session(id), { method: "DELETE" }),
  // Events as people read them: the server finds the parts, the page draws them.
  events: (id, after, limit, signal) => request(`${session(id)}/events?view=parts&after=${after}&limit=${limit}`, { signal, parts: true }),
  wholeEvents: (id, after, limit) => request(`${session(id)}/events?view=parts&whole=true&after=${after}&limit=${limit}`, { parts: true }),
  deletions: (id, after, signal) => request(`${session(id)}/events?view=parts&kind=item_deleted&after=${after}`, { signal, parts: true }),
  // One event with nothing cut, and one as it is stored.
  whole: async (id, seq) => (await api.wholeEvents(id, seq - 1, 1)).events[0],
  stored: async (id, seq, signal) => (await request(`${session(id)}/events?after=${seq - 1}&limit=1`, { signal })).events[0],
  event: (id, event) => request(`${session(id)}/events?view=parts&id=${encodeURIComponent(event)}`, { parts: true }).then((page) => page.events[0]),
  attachment: async (id, digest, type) => (await answer(`${session(id)}/attachments/${digest}${type ? `?media_type=${encodeURIComponent(type)}` : ""}`)).blob(),
  // A session as a file, and its name according to the server: other tools find their files by name.
  exported: async (id, format) => {
    const response = await answer(`${session(id)}/export?format=${format}`);
    return { blob: await response.blob(), name: fileName(response.headers.get("Content-Disposition") ?? "") };
  },
  search: (query, signal) => request(`/v1/search?${new URLSearchParams(query)}`, { signal }),
  find: (id, q, after, signal) => request(`${session(id)}/find?${new URLSearchParams({ q, after, limit: 1000 })}`, { signal }),
  turn: async (id, signal) => (await request(`${session(id)}/turn`, { signal }))?.turn ?? null,
  append: (id, batch, key, signal) =>
    request(`${session(id)}/events`, { method: "POST", body: batch, headers: { "Idempotency-Key": key }, signal }),
  stream: (id, created, after, signal) => answer(`${session(id)}/events/stream?${new URLSearchParams({ view: "parts", after, created })}`, { headers: { Accept: "text/event-stream" }, signal }),
};

// newKey is an idempotency key. randomUUID would need https on other hosts.
export function newKey() {
  return "page-" + Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}

// serverSent reads the messages of an event stream: { id, event, data }. It calls
// alive for every piece that arrives, heartbeats included.
export async function* serverSent(response, alive) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let message = { id: "", event: "message", data: [] };
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      alive();
      if (!/[\r\n]/.test(value)) { // the middle of a large event: splitting it each time would be slow
        rest += value;
        continue;
      }
      const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      for (const line of lines) {
        if (line === "") {
          if (message.data.length) yield { ...message, data: message.data.join("\n") };
          message = { id: "", event: "message", data: [] };
          continue;
        }
        const colon = line.indexOf(":");
        if (colon === 0) continue; // a comment
        const field = colon < 0 ? line : line.slice(0, colon);
        const text = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (field === "data") message.data.push(text);
        else if (field === "event") message.event = text;
        else if (field === "id") message.id = text;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
