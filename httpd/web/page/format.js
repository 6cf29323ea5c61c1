// Times, sizes and numbers for people.

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium" });
const dayLong = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long", year: "numeric" });
const dayShort = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const dayYear = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });
const plain = new Intl.NumberFormat();

const valid = (date) => !Number.isNaN(date.getTime());

export const number = (n) => plain.format(n);
export const clockTime = (time) => (valid(new Date(time)) ? clock.format(new Date(time)) : "");
export const exactTime = (time) => (valid(new Date(time)) ? exact.format(new Date(time)) : "");
export const day = (time) => (valid(new Date(time)) ? dayLong.format(new Date(time)) : "");

// ago returns how long ago a time was, in few letters.
export function ago(time, now = Date.now()) {
  const date = new Date(time);
  if (!valid(date)) return "";
  const seconds = Math.max(0, (now - date.getTime()) / 1000);
  if (seconds < 10) return "now";
  if (seconds < 86400) return span(seconds * 1000);
  if (seconds < 300 * 86400) return dayShort.format(date);
  return dayYear.format(date);
}

// span returns a duration in its largest unit.
export function span(ms) {
  const seconds = ms / 1000;
  if (seconds < 1) return `${Math.max(0, Math.round(ms))} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

// size returns a number of bytes or characters.
export function size(n) {
  if (n < 1000) return `${n} B`;
  if (n < 1e6) return `${Math.round(n / 1000)} kB`;
  return `${(n / 1e6).toFixed(1)} MB`;
}

// ticking keeps a text that depends on the time up to date. It stops when the
// element has left the page.
const tickers = new Set();
export function ticking(el, text) {
  const show = () => {
    const now = text();
    if (el.textContent !== now) el.textContent = now;
  };
  show();
  tickers.add({ el, show, fresh: true });
  return el;
}
setInterval(() => {
  for (const t of tickers) {
    if (t.el.isConnected) { t.fresh = false; t.show(); } else if (!t.fresh) tickers.delete(t); else t.fresh = false;
  }
}, 1000);
