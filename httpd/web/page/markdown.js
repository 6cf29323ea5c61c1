// A small markdown renderer for untrusted text. It builds nodes, never markup;
// whatever it does not understand stays text. It is linear in its input apart from
// bounded look-ahead, and nests to a bounded depth, so that no message can make it
// slow.

import { coloured } from "./colour.js";
import { copyButton, h, showTurning } from "./dom.js";

const nestingMax = 6;
const linkTextMax = 1000;
const urlMax = 2000;

// markdown renders a text.
export function markdown(text) {
  const fragment = document.createDocumentFragment();
  outline = { first: 0, last: 2 };
  blocks(text.replace(/\r\n?/g, "\n").split("\n"), fragment, 0);
  return fragment;
}

// The heading levels of a text: they start below the page's own, whatever level the
// text starts with, and skip none.
let outline = { first: 0, last: 2 };
function headingLevel(n) {
  outline.first ||= n;
  outline.last = Math.max(3, Math.min(3 + n - outline.first, outline.last + 1, 6));
  return outline.last;
}

// safeLink returns the URL if a link may lead there: http, https or mailto.
export function safeLink(url) {
  try {
    const parsed = new URL(url);
    return ["http:", "https:", "mailto:"].includes(parsed.protocol) ? parsed.href : null;
  } catch {
    return null;
  }
}

// safeImage returns the URL if it contains the image itself, of a type that is only pixels.
export function safeImage(url) {
  return typeof url === "string" && /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+$/.test(url) ? url : null;
}

// link is a link to a foreign page, or only the text if the URL is not safe.
export function link(url, ...content) {
  const href = safeLink(url);
  if (!href) return h("span", { title: url }, ...content);
  return h("a", { href, rel: "noopener noreferrer nofollow", target: "_blank", title: href }, ...content);
}

const fence = /^ {0,3}(`{3,}|~{3,})\s*([^`]{0,100})$/;
const heading = /^ {0,3}(#{1,6})\s+(.*)$/;
const item = /^( {0,12})([-*+]|\d{1,9}[.)])( +|$)(.*)$/;
const quote = /^ {0,3}> ?/;
const isRule = (line) => /^ {0,3}([-*_])( *\1){2,} *$/.test(line) && line.length < 200;
const isBlank = (line) => line.trim() === "";
const expand = (line) => line.replace(/^[ \t]+/, (space) => space.replaceAll("\t", "    "));

function blocks(lines, into, depth) {
  let paragraph = [];
  const flush = () => {
    if (paragraph.length) into.append(h("p", null, inline(paragraph.join("\n"))));
    paragraph = [];
  };
  for (let i = 0; i < lines.length;) {
    const line = expand(lines[i]);
    let m;
    if (isBlank(line)) {
      flush();
      i++;
    } else if ((m = fence.exec(line))) {
      flush();
      i = codeBlock(lines, i, m, into);
    } else if ((m = heading.exec(line))) {
      flush();
      into.append(h(`h${headingLevel(m[1].length)}`, null, inline(m[2].replace(/\s#+\s*$/, ""))));
      i++;
    } else if (isRule(line)) {
      flush();
      into.append(h("hr"));
      i++;
    } else if (depth < nestingMax && quote.test(line)) {
      flush();
      const inner = [];
      while (i < lines.length && quote.test(lines[i])) inner.push(lines[i++].replace(quote, ""));
      const el = h("blockquote");
      blocks(inner, el, depth + 1);
      into.append(el);
    } else if (depth < nestingMax && (m = item.exec(line)) && (paragraph.length === 0 || m[4] !== "")) {
      flush();
      i = list(lines, i, into, depth);
    } else if (paragraph.length === 0 && isTable(lines, i)) {
      i = table(lines, i, into);
    } else {
      paragraph.push(line.trim());
      i++;
    }
  }
  flush();
}

function codeBlock(lines, i, [opening, mark, info], into) {
  const indent = opening.length - opening.trimStart().length;
  const code = [];
  for (i++; i < lines.length; i++) {
    const end = lines[i].trim();
    if (end.length >= mark.length && end === mark[0].repeat(end.length)) { i++; break; }
    code.push(lines[i].slice(Math.min(indent, lines[i].length - lines[i].trimStart().length)));
  }
  into.append(codeBox(code.join("\n"), info.trim().split(/\s/)[0]));
  return i;
}

// codeBox is a block of code that can be copied.
export function codeBox(text, language) {
  return h("div.code", null,
    h("div.code-head", null, h("span", null, language || ""), copyButton(() => text, "Copy the code")),
    showTurning(h("pre", { tabindex: "0" }, h("code", null, coloured(text, language)))));
}

function list(lines, i, into, depth) {
  const first = item.exec(expand(lines[i]));
  const ordered = first[2].length > 1;
  const el = h(ordered ? "ol" : "ul", ordered && first[2] !== "1." ? { start: parseInt(first[2], 10) } : null);
  let loose = false;
  while (i < lines.length) {
    const m = item.exec(expand(lines[i]));
    if (!m || m[1].length > first[1].length + 1 || m[1].length + 1 < first[1].length || (m[2].length > 1) !== ordered || isRule(lines[i])) break;
    const content = m[1].length + m[2].length + Math.max(1, Math.min(4, m[3].length));
    const inner = [m[4]];
    for (i++; i < lines.length; i++) {
      const line = expand(lines[i]);
      const indent = line.length - line.trimStart().length;
      if (isBlank(line)) {
        const next = i + 1 < lines.length ? expand(lines[i + 1]) : "";
        const nested = !isBlank(next) && next.length - next.trimStart().length >= Math.min(content, m[1].length + 2);
        if (!nested) break;
        inner.push("");
        loose = true;
      } else if (indent >= Math.min(content, m[1].length + 2)) {
        inner.push(line.slice(Math.min(indent, content)));
      } else if (item.test(line) || fence.test(line) || heading.test(line) || quote.test(line) || isRule(line)) {
        break;
      } else {
        inner.push(line.trim()); // a continued line
      }
    }
    el.append(listItem(inner, depth));
    if (i < lines.length && isBlank(lines[i]) && item.test(expand(lines[i + 1] ?? ""))) i++;
  }
  if (loose) el.classList.add("loose");
  into.append(el);
  return i;
}

function listItem(lines, depth) {
  const li = h("li");
  const task = /^\[([ xX])\]\s+(.*)$/.exec(lines[0]);
  if (task) {
    lines = [task[2], ...lines.slice(1)];
    li.className = "task";
    li.append(h("span.box", { role: "img", "aria-label": task[1] === " " ? "open" : "done" }, task[1] === " " ? "☐" : "☑"));
  }
  blocks(lines, li, depth + 1);
  return li;
}

const cells = (line) => line.trim().replace(/^\|/, "").replace(/\|$/, "").split(/(?<!\\)\|/).map((c) => c.trim().replaceAll("\\|", "|"));

function isTable(lines, i) {
  if (i + 1 >= lines.length || !lines[i].includes("|") || !lines[i + 1].includes("-")) return false;
  const rule = cells(lines[i + 1]);
  return rule.length === cells(lines[i]).length && rule.length <= 50 && rule.every((c) => /^:?-{1,200}:?$/.test(c));
}

function table(lines, i, into) {
  const head = cells(lines[i]);
  const align = cells(lines[i + 1]).map((c) => (c.endsWith(":") ? (c.startsWith(":") ? "centre" : "right") : null));
  const row = (tag, texts) => h("tr", null, head.map((_, n) => h(tag, { class: align[n] }, inline(texts[n] ?? ""))));
  const body = h("tbody");
  for (i += 2; i < lines.length && !isBlank(lines[i]) && lines[i].includes("|"); i++) body.append(row("td", cells(lines[i])));
  into.append(h("div.table", { tabindex: "0" }, h("table", null, h("thead", null, row("th", head)), body)));
  return i;
}

// inline renders the content of a paragraph.
function inline(text, depth = 0) {
  const out = document.createDocumentFragment();
  const missing = new Set(); // closing marks that are not in the rest of the text
  let plain = "";
  const flush = () => {
    if (plain) out.append(plain);
    plain = "";
  };
  const put = (node) => { flush(); out.append(node); };
  for (let i = 0; i < text.length;) {
    const found = span(text, i, depth, missing);
    if (found) {
      put(found.node);
      i = found.end;
    } else if (text[i] === "\n") {
      put(h("br"));
      i++;
    } else {
      const escaped = text[i] === "\\" && /[!-/:-@[-`{-~]/.test(text[i + 1] ?? "");
      plain += escaped ? text[i + 1] : text[i];
      i += escaped ? 2 : 1;
    }
  }
  flush();
  return out;
}

// span returns the element that begins at i, and where it ends; null if none does.
function span(text, i, depth, missing) {
  switch (text[i]) {
    case "`": return codeSpan(text, i, missing);
    case "*": case "_": case "~": return depth < nestingMax ? emphasis(text, i, depth, missing) : null;
    case "[": return bracket(text, i, depth);
    case "!": return text[i + 1] === "[" ? picture(text, i) : null;
    case "<": return angle(text, i);
    case "h": return bare(text, i);
  }
  return null;
}

function codeSpan(text, i, missing) {
  let n = 1;
  while (text[i + n] === "`") n++;
  const mark = "`".repeat(n);
  if (missing.has(mark)) return { node: document.createTextNode(mark), end: i + n };
  for (let at = i + n; ;) {
    const close = text.indexOf(mark, at);
    if (close < 0) {
      missing.add(mark);
      return { node: document.createTextNode(mark), end: i + n };
    }
    let end = close + n;
    if (text[end] !== "`") {
      const code = text.slice(i + n, close).replaceAll("\n", " ");
      const padded = code.startsWith(" ") && code.endsWith(" ") && code.trim() !== "";
      return { node: h("code", null, padded ? code.slice(1, -1) : code), end };
    }
    while (text[end] === "`") end++;
    at = end;
  }
}

const wordAt = (text, i) => i >= 0 && i < text.length && /[\p{L}\p{N}]/u.test(text[i]);
const spaceAt = (text, i) => i < 0 || i >= text.length || /\s/.test(text[i]);

function emphasis(text, i, depth, missing) {
  const c = text[i];
  const double = text[i + 1] === c;
  if (c === "~" && !double) return null;
  if (double && text[i + 2] === c && text[i + 3] !== c && c !== "~") return both(text, i, c.repeat(3), depth, missing);
  const mark = double ? c + c : c;
  const begin = i + mark.length;
  if (missing.has(mark) || spaceAt(text, begin) || (c === "_" && wordAt(text, i - 1))) return null;
  for (let close = text.indexOf(mark, begin + 1); close >= 0; close = text.indexOf(mark, close + 1)) {
    const end = close + mark.length;
    if (spaceAt(text, close - 1) || (c === "_" && wordAt(text, end))) continue;
    if (!double && (text[end] === c || text[close - 1] === c)) { close = end; continue; } // a part of a double one
    const tag = c === "~" ? "del" : double ? "strong" : "em";
    return { node: h(tag, null, inline(text.slice(begin, close), depth + 1)), end };
  }
  missing.add(mark);
  return null;
}

// both is ***strong and emphasised***.
function both(text, i, mark, depth, missing) {
  const close = missing.has(mark) ? -1 : text.indexOf(mark, i + 4);
  if (close < 0) missing.add(mark);
  if (close < 0 || spaceAt(text, i + 3) || spaceAt(text, close - 1)) return null;
  return { node: h("strong", null, h("em", null, inline(text.slice(i + 3, close), depth + 1))), end: close + 3 };
}

// target reads "](url "title")" from the closing bracket.
function target(text, close) {
  if (text[close] !== "]" || text[close + 1] !== "(") return null;
  let depth = 1;
  for (let i = close + 2; i < text.length && i < close + urlMax; i++) {
    if (text[i] === "\n") return null;
    if (text[i] === "(") depth++;
    if (text[i] === ")" && --depth === 0) {
      const [, url] = /^\s*<?([^\s<>]*)>?(?:\s["'(].*)?$/.exec(text.slice(close + 2, i).trim()) ?? [];
      return url === undefined ? null : { url, end: i + 1 };
    }
  }
  return null;
}

function closing(text, open) {
  let depth = 0;
  for (let i = open; i < text.length && i < open + linkTextMax; i++) {
    if (text[i] === "\\") i++;
    else if (text[i] === "[") depth++;
    else if (text[i] === "]" && --depth === 0) return i;
  }
  return -1;
}

function bracket(text, i, depth) {
  const close = closing(text, i);
  const to = close > 0 ? target(text, close) : null;
  if (!to || depth >= nestingMax) return null;
  return { node: link(to.url, inline(text.slice(i + 1, close), nestingMax)), end: to.end };
}

// picture shows an image that is in the text itself. One from elsewhere would
// reveal the reader to its host: it becomes a link.
function picture(text, i) {
  const close = closing(text, i + 1);
  if (close < 0 || text[close + 1] !== "(") return null;
  const alt = text.slice(i + 2, close);
  if (text.startsWith("data:image/", close + 2)) {
    const end = text.indexOf(")", close);
    const src = end < 0 ? null : safeImage(text.slice(close + 2, end));
    return src ? { node: image(src, alt), end: end + 1 } : null;
  }
  const to = target(text, close);
  return to && { node: link(to.url, `🖼 ${alt || "image"}`), end: to.end };
}

// image is an image that may be shown: see safeImage.
export function image(src, alt) {
  return h("img.picture", { src, alt: alt || "image", loading: "lazy", decoding: "async" });
}

function angle(text, i) {
  const [whole, url] = /^<((?:https?:\/\/|mailto:)[^\s<>]+)>/.exec(text.slice(i, i + urlMax)) ?? [];
  return whole ? { node: link(url, url), end: i + whole.length } : null;
}

function bare(text, i) {
  if (!(text.startsWith("http://", i) || text.startsWith("https://", i)) || wordAt(text, i - 1)) return null;
  const url = /^[^\s<>"'`|\\^{}]+/.exec(text.slice(i, i + urlMax))[0].replace(/[.,;:!?*_~\])]+$/, (tail) => (tail[0] === ")" && text.slice(i, i + 200).includes("(") ? ")" : ""));
  if (url.length < 9) return null;
  return { node: link(url, url), end: i + url.length };
}
