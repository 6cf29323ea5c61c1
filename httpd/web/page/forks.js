// Forks: a new session that begins with the history of another one.

import { api } from "./api.js";
import { h } from "./dom.js";
import { number } from "./format.js";

// fork makes a fork of a session with its events up to a seq, and returns its
// description. Inside a batch, the server says where a fork is possible, and the fork
// gets the whole batch.
export async function fork(id, seq) {
  try {
    return await api.fork(id, { at: seq });
  } catch (error) {
    const end = error.status === 422 && /fork at (?:\d+ or )?(\d+)/.exec(error.message)?.[1];
    if (!end) throw error;
    return api.fork(id, { at: Number(end) });
  }
}

const link = (id, seq, ...text) => h("a.label", { href: `#/s/${encodeURIComponent(id)}${seq ? `/${seq}` : ""}` }, ...text);

// lineage shows which session a session is a fork of.
export function lineage(info) {
  if (!info.parent) return [];
  const { id, at } = info.parent;
  return [h("span.lineage", null, "fork of ", link(id, at, h("bdi", null, id), ` at ${number(at)}`))];
}

const shown = 5;

// forksOf shows which forks a session has; nothing if the server can't be asked.
export async function forksOf(id, signal) {
  let page;
  try { page = await api.forks(id, shown + 1, signal); } catch { return []; }
  const forks = page.sessions.slice(0, shown);
  if (!forks.length) return [];
  return [h("span.lineage.forks-of", null, "forks ", ...forks.map((f) => link(f.id, 0, h("bdi", null, f.title || f.id))), page.sessions.length > shown && " and more")];
}
