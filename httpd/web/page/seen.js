// What was read in this browser: the last seq of each session that was in view, so
// that the list can mark what is new. A session that was never opened is new if it
// has changed since this browser was first used.

const key = "hansard.seen";
const sessionsMax = 2000;

let state = null;

function load() {
  if (state) return state;
  try { state = JSON.parse(localStorage.getItem(key)); } catch { /* treated as if there were none */ }
  if (!state || typeof state.since !== "number" || typeof state.seen !== "object" || state.seen === null) state = { since: Date.now(), seen: {} };
  state.seen = new Map(Object.entries(state.seen));
  save();
  return state;
}

let saving = null;
function save() {
  clearTimeout(saving);
  saving = setTimeout(() => {
    try { localStorage.setItem(key, JSON.stringify({ since: state.since, seen: Object.fromEntries(state.seen) })); } catch { /* it lasts as long as the page */ }
  }, 300);
}

addEventListener("storage", (e) => { if (e.key === key) state = null; }); // another tab has read further

// markSeen notes that a session was read up to a seq.
export function markSeen(id, seq) {
  const { seen } = load();
  if ((seen.get(id) ?? -1) >= seq) return false;
  seen.delete(id); // the newest last
  seen.set(id, seq);
  for (const old of seen.keys()) {
    if (seen.size <= sessionsMax) break;
    seen.delete(old);
  }
  save();
  return true;
}

// unread returns how many events of a session are new; Infinity for one that was
// never opened, 0 for none.
export function unread(info) {
  const { since, seen } = load();
  if (seen.has(info.id)) return Math.max(0, info.last_seq - seen.get(info.id));
  return info.last_seq > 0 && new Date(info.updated).getTime() > since ? Infinity : 0;
}
