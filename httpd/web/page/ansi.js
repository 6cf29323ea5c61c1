// Terminal output as nodes: colours become classes, all other control sequences are
// left out. Text without any stays one node.

import { h } from "./dom.js";

const spansMax = 2000; // spans are costly; past this many the rest is plain

// driving matches what a terminal does not show: sequences that begin with an
// escape (or their short form).
const driving = /(?:\x1b\[|\x9b)([0-9;:<=>?]*)[ -/]*([@-~])|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[()#% ]?.?/g;
const special = /[\x1b\x9b\b\r]/;

// ansi returns the nodes of a text.
export function ansi(text) {
  if (!special.test(text)) return [text];
  text = settle(text);
  const nodes = [];
  let style = { classes: new Set() }, at = 0, spans = 0;
  const put = (end) => {
    if (end <= at) return;
    const piece = text.slice(at, end);
    const names = [...style.classes];
    if (style.invert) names.push("ansi-invert");
    if (names.length === 0 || spans >= spansMax) nodes.push(piece);
    else { nodes.push(h(`span.${names.join(".")}`, null, piece)); spans++; }
  };
  for (const m of text.matchAll(driving)) {
    put(m.index);
    at = m.index + m[0].length;
    if (m[2] === "m") style = changed(style, m[1]);
  }
  put(text.length);
  return nodes;
}

// settle applies backspaces and carriage returns: overwritten text is removed.
function settle(text) {
  text = text.replace(/\r+\n/g, "\n");
  if (text.includes("\r")) text = text.split("\n").map((line) => line.slice(line.replace(/\r+$/, "").lastIndexOf("\r") + 1).replace(/\r+$/, "")).join("\n");
  if (!text.includes("\b")) return text;
  const out = [];
  for (const c of text) {
    if (c !== "\b") out.push(c);
    else if (out.length && out.at(-1) !== "\n") out.pop();
  }
  return out.join("");
}

// changed returns a style after a sequence of numbers.
function changed(style, numbers) {
  const next = { classes: new Set(style.classes), invert: style.invert };
  const codes = numbers.split(/[;:]/).map(Number);
  const drop = (prefix) => { for (const c of next.classes) if (c.startsWith(prefix)) next.classes.delete(c); };
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i];
    if (code === 0) { next.classes.clear(); next.invert = false; }
    else if (code === 1) next.classes.add("ansi-bold");
    else if (code === 2) next.classes.add("ansi-dim");
    else if (code === 3) next.classes.add("ansi-italic");
    else if (code === 4) next.classes.add("ansi-under");
    else if (code === 7) next.invert = true;
    else if (code === 9) next.classes.add("ansi-struck");
    else if (code === 22) { next.classes.delete("ansi-bold"); next.classes.delete("ansi-dim"); }
    else if (code === 23) next.classes.delete("ansi-italic");
    else if (code === 24) next.classes.delete("ansi-under");
    else if (code === 27) next.invert = false;
    else if (code === 29) next.classes.delete("ansi-struck");
    else if (code === 39) drop("ansi-fg");
    else if (code === 49) drop("ansi-bg");
    else if (code === 38 || code === 48) {
      const which = code === 38 ? "ansi-fg" : "ansi-bg";
      const colour = codes[i + 1] === 5 ? nearest256(codes[i + 2]) : codes[i + 1] === 2 ? nearest(codes[i + 2], codes[i + 3], codes[i + 4]) : null;
      i += codes[i + 1] === 5 ? 2 : codes[i + 1] === 2 ? 4 : 0;
      drop(which);
      if (colour !== null) next.classes.add(which + colour);
    } else {
      const [which, n] = code >= 30 && code <= 37 ? ["ansi-fg", code - 30] : code >= 90 && code <= 97 ? ["ansi-fg", code - 90]
        : code >= 40 && code <= 47 ? ["ansi-bg", code - 40] : code >= 100 && code <= 107 ? ["ansi-bg", code - 100] : [null, 0];
      if (which) { drop(which); next.classes.add(which + n); }
    }
  }
  return next;
}

// The page has eight colours that are legible on its background; all others become
// the nearest of them.
function nearest256(n) {
  if (!(n >= 0 && n <= 255)) return null;
  if (n < 16) return n % 8;
  if (n >= 232) return n < 244 ? 0 : 7;
  const c = n - 16;
  return nearest(Math.floor(c / 36) * 51, (Math.floor(c / 6) % 6) * 51, (c % 6) * 51);
}

function nearest(r, g, b) {
  if (![r, g, b].every((v) => v >= 0 && v <= 255)) return null;
  const most = Math.max(r, g, b), least = Math.min(r, g, b);
  if (most - least < 40) return most < 110 ? 0 : 7;
  const on = (v) => (v > (most + least) / 2 ? 1 : 0);
  return on(r) | (on(g) << 1) | (on(b) << 2);
}
