// Literal shows text verbatim: monospace, with its columns, the colours a terminal
// would show, and diffs coloured; folded when it is long.

import { ansi } from "./ansi.js";
import { coloured, looksLikeDiff } from "./colour.js";
import { copyButton, h, showTurning } from "./dom.js";
import { number, size } from "./format.js";

const foldLines = 20; // from this many lines on it is folded …
const shownLines = 10; // … to this many
const wideLine = 500; // longer lines are wrapped: nobody scrolls that far
const rowChars = 100; // about how many characters fit in a row of a wrapped line

const escape = /[\x1b\x9b\b\r]/;

// nodes returns the nodes of a text: with a terminal's colours, or a language's.
function nodes(text, language) {
  if (escape.test(text)) return ansi(text);
  if (language || looksLikeDiff(text)) return coloured(text, language);
  return [text];
}

// lineEnd returns the position after the n-th line of a text, or its length.
function lineEnd(text, n) {
  let at = -1;
  for (let i = 0; i < n; i++) {
    at = text.indexOf("\n", at + 1);
    if (at < 0) return text.length;
  }
  return at + 1;
}

function countLines(text) {
  let n = 1;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) n++;
  return text.endsWith("\n") ? n - 1 : n;
}

// literal makes a box. The options are { language, cut, whole, open, error }: cut is how
// many bytes the server left out, whole() promises the full text, error(e) reports why
// it could not be loaded.
export function literal(text, { language = "", cut = 0, whole, open = false, error } = {}) {
  const trimmed = text.endsWith("\n") ? text.slice(0, -1) : text;
  const wide = trimmed.split("\n", 2000).some((line) => line.length > wideLine);
  const pre = h(`pre.literal${wide ? ".wide" : ""}`, { tabindex: "0" });
  const box = h("div.literal-box", null, h("div.literal-tools", null, copyButton(async () => (cut && whole ? await whole() : text), "Copy")), pre);
  const lines = countLines(text);
  let shown = trimmed;
  const paint = () => {
    pre.replaceChildren(...nodes(shown, language));
    showTurning(pre);
  };
  // recolour sets a language that became known later.
  box.recolour = (name) => {
    language ||= name;
    paint();
  };
  const tall = lines >= foldLines, long = tall || wide && trimmed.length > foldLines * rowChars;
  if (!long && !cut || open) {
    paint();
    if (cut) box.append(h("p.quiet", null, `… ${size(cut)} more`));
    return box;
  }
  const all = `all ${cut || !tall ? size(new Blob([text]).size + cut) : `${number(lines)} lines`}`;
  const button = h("button.unfold", { type: "button", "aria-expanded": "false" });
  const head = trimmed.slice(0, long ? Math.min(lineEnd(trimmed, shownLines), wide ? shownLines * rowChars : Infinity) : trimmed.length).replace(/[\n\ud800-\udbff]$/, "");
  let full = cut ? null : trimmed;
  const show = async (unfold) => {
    if (unfold && full === null) {
      button.disabled = true;
      try {
        full = (await whole()).replace(/\n$/, "");
      } catch (e) {
        error?.(e);
        return;
      } finally {
        button.disabled = false;
      }
    }
    shown = unfold ? full : head;
    paint();
    box.classList.toggle("folded", !unfold);
    button.setAttribute("aria-expanded", String(unfold));
    button.textContent = unfold ? "Show less" : `Show ${all}`;
  };
  button.addEventListener("click", () => show(button.getAttribute("aria-expanded") !== "true"));
  box.append(button);
  show(false);
  return box;
}
