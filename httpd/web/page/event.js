// One event as an element. Everything that comes from the session goes through
// text nodes, markdown() and safeImage().

import { h, icon } from "./dom.js";
import { parts, covered, preview, roleOf, stringify } from "./content.js";
import { markdown, codeBox, image, link } from "./markdown.js";
import { clockTime, day, exactTime, number, size, span } from "./format.js";

// Longer content is cut and can be asked for: one message must not choke the page.
const textMax = 20_000;
const jsonFold = 600;

// eventRow makes the row of an event. Its context is { id, pairs }.
export function eventRow(event, context) {
  const role = event.role || roleOf(event.data);
  const row = h("article.event", { tabindex: "-1", dataset: { seq: event.seq, kind: kinds.has(event.kind) ? event.kind : "other", voice: voice(role) } });
  const seq = h("a.seq", { href: `#/s/${encodeURIComponent(context.id)}/${event.seq}`, title: `Event ${event.seq}, ${exactTime(event.time)}`, "aria-label": `Event ${event.seq}` }, number(event.seq));
  row.append(seq);
  try {
    row.append((kinds.get(event.kind) ?? speechRow)(event, context, role), ...changes(event));
  } catch (error) {
    // Nested too deep, say. One event must not hide the others.
    row.append(aside(event, `This event can't be shown: ${error.message}. `, h("code", null, `hansard show ${context.id} --after ${event.seq - 1} --limit 1`), " prints it."));
  }
  row.append(rawButton(row, event));
  return row;
}

// place sets what depends on the events before it: the day, and whether the speaker
// goes on. spoke is the last one that was not the result of a tool.
export function place(row, event, before, spoke) {
  const today = day(event.time);
  const marked = row.querySelector(":scope > .day");
  const newDay = today && (!before || day(before.time) !== today);
  if (newDay && !marked) row.prepend(h("div.day", null, h("span", null, today)));
  if (!newDay && marked) marked.remove();
  const goesOn = !newDay && spoke && speech(event) && speech(spoke) && speaker(event) === speaker(spoke)
    && Math.abs(new Date(event.time) - new Date(spoke.time)) < 300_000 && !event.inbox;
  row.classList.toggle("continued", Boolean(goesOn));
}

// answers tells whether an event is only what a tool gave back.
export const answers = (event) => event.kind === "tool_result" || voice(event.role || roleOf(event.data)) === "tool";

const speech = (event) => !["turn", "meta", "summary"].includes(event.kind);
export const speaker = (event) => event.author || event.role || roleOf(event.data) || event.kind;

function voice(role) {
  switch (role) {
    case "user": case "human": return "user";
    case "system": case "developer": return "system";
    case "tool": case "function": return "tool";
  }
  return "agent";
}

// head says who wrote it and when.
function head(event, role) {
  const name = speaker(event);
  return h("header.who", null,
    h("span.avatar." + hue(name), { "aria-hidden": "true" }, [...name][0]?.toUpperCase() ?? "?"),
    h("bdi.name", null, name),
    role && role !== name && h("bdi.role", null, role),
    event.kind !== "message" && !kinds.has(event.kind) && h("bdi.kind", null, event.kind),
    event.inbox && h("span.badge.inbox", { title: "Left to the holder of the turn to take up" }, "inbox"),
    h("time", { datetime: event.time, title: exactTime(event.time) }, clockTime(event.time)));
}

// hue is one of twelve colours, the same for a name everywhere.
export function hue(name) {
  let sum = 7;
  for (const c of name) sum = (sum * 31 + c.codePointAt(0)) >>> 0;
  return "hue" + (sum % 12);
}

// A map and not an object: a kind may be called "constructor".
const kinds = new Map(Object.entries({
  message: speechRow,
  tool_call: speechRow,
  tool_result: speechRow,
  summary: (event) => h("section.summary", null,
    h("header", null, h("strong", null, "Summary"), covered(event.data) && h("span", null, `of ${covered(event.data)}`),
      event.author && h("bdi", null, `by ${event.author}`), h("time", { datetime: event.time, title: exactTime(event.time) }, clockTime(event.time))),
    h("div.body", null, parts(event.data, "summary").map((p) => show(p, event, {})))),
  turn: turnRow,
  meta: (event) => aside(event, event.author && h("bdi.name", null, event.author), event.author ? " changed the session" : "The session was changed",
    event.data !== null && event.data !== undefined && jsonBox(event.data)),
}));

function speechRow(event, context, role) {
  const content = parts(event.data, event.kind);
  // Results say who gave them on their own line: a tool is no speaker.
  const bare = content.length > 0 && content.every((p) => p.is === "result");
  return h("div.speech", null, !bare && head(event, role), h("div.body", null, content.map((p) => show(p, event, context))));
}

// aside is a line between the speeches.
function aside(event, ...content) {
  return h("p.aside", null, ...content, " ", h("time", { datetime: event.time, title: exactTime(event.time) }, clockTime(event.time)));
}

// holderName is how people call the holder of a turn.
export function holderName(holder) {
  return holder?.label || (holder?.pid ? `pid ${holder.pid}` : "") || "somebody";
}

const whys = new Map([["dead", "its holder was gone"], ["silent", "its holder gave no sign of life"], ["overdue", "its holder had it for too long"]]);

function turnRow(event) {
  const record = event.data ?? {};
  const who = h("bdi.name", null, holderName(record.holder));
  const grant = h("span.grant", { title: `grant ${event.turn}` }, "turn");
  const alone = record.exclusive ? " for itself alone" : "";
  switch (record.change) {
    case "granted": return aside(event, who, " took the ", grant, alone);
    case "taken": return aside(event, who, " took the ", grant, " over", alone, whys.has(record.why) ? `: ${whys.get(record.why)}` : "");
    case "stolen": return aside(event, who, " took the ", grant, " away from a live holder", alone, record.reason ? ": " : "", record.reason ? h("q", null, record.reason) : "");
    case "released": return aside(event, ...(record.holder ? [who, " released the ", grant] : ["The ", grant, " was released"]));
    case "ended": return aside(event, "The ", grant, " ended: its holder was gone");
    case "moved": return aside(event, "The ", grant, " is kept by another process from here on");
  }
  return aside(event, "The ", grant, ` changed: ${preview(record, 200)}`);
}

// changes are the lines about metadata that was committed with an event.
function changes(event) {
  const patch = event.patch;
  if (!patch) return [];
  const lines = [];
  if (patch.title !== undefined && patch.title !== null) lines.push(h("li", null, "title ", h("bdi.value", null, patch.title || "(none)")));
  for (const [name, value] of Object.entries(patch.labels ?? {})) {
    lines.push(value === null ? h("li", null, "label ", h("bdi.value", null, name), " removed") : h("li", null, "label ", h("bdi.value", null, `${name}=${value}`)));
  }
  if (patch.state !== undefined && patch.state !== null) lines.push(h("li", null, jsonBox(patch.state, "state")));
  return lines.length ? [h("ul.patch", { "aria-label": "Changes of the session" }, lines)] : [];
}

// show renders one part of an event's content.
function show(part, event, context) {
  switch (part.is) {
    case "text": return textBox(part.text);
    case "thinking": return h("details.fold.thinking", null, h("summary", null, part.text ? "Thinking" : "Thinking (hidden by the model)"), part.text && textBox(part.text));
    case "image": return h("figure", null, image(part.src, part.alt));
    case "remote": return h("p.remote", null, "Image, not loaded: ", link(part.url, part.alt || preview(part.url, 100)));
    case "call": return callBox(part, event, context);
    case "result": return resultBox(part, event, context);
  }
  return jsonBox(part.value, part.label);
}

// textBox renders markdown, the beginning of it when it is very long.
function textBox(text) {
  const box = h("div.md");
  if (text.length <= textMax) {
    box.append(markdown(text));
    return box;
  }
  const cut = text.lastIndexOf("\n", textMax);
  const begin = text.slice(0, cut > textMax / 2 ? cut : textMax);
  box.append(markdown(begin), h("button.more", { type: "button", onclick: (e) => {
    e.target.remove();
    box.append(h("pre.plain", { tabindex: "0" }, text.slice(begin.length)));
  } }, `Show the other ${size(text.length - begin.length)}`));
  return box;
}

// jsonBox shows any value, folded when it is long.
function jsonBox(value, label) {
  const flat = stringify(value);
  if (flat.length <= 80 && !label) return h("code.value", null, flat);
  const body = () => codeBox(stringify(value, 2), "json");
  if (flat.length <= jsonFold && !label) return body();
  return lazy("details.fold.json", [h("b", null, label || "JSON"), h("span.preview", null, preview(value)), h("span.size", null, size(flat.length))], body);
}

// lazy is a fold whose content is made when it is opened.
function lazy(spec, summary, content) {
  const details = h(spec, null, h("summary", null, summary));
  details.addEventListener("toggle", () => { if (details.open && details.childElementCount === 1) details.append(content()); });
  return details;
}

function callBox(part, event, context) {
  const state = h("span.state", null);
  const box = lazy("details.tool.call", [icon("tool"), h("bdi.tool-name", null, part.name), h("span.preview", null, preview(part.input)), state],
    () => (typeof part.input === "string" ? codeBox(part.input, "") : codeBox(stringify(part.input, 2), "json")));
  context.pairs?.add("call", part.id, { seq: event.seq, name: part.name, meet: (result) => {
    const took = new Date(result.time) - new Date(event.time);
    state.className = "state " + (result.failed ? "failed" : "done");
    state.replaceChildren(icon(result.failed ? "cross" : "check"), took >= 0 ? span(took) : "");
    state.title = `result: event ${result.seq}`;
  } });
  return box;
}

function resultBox(part, event, context) {
  const name = h("bdi.tool-name", null, part.name || "result");
  const about = part.parts.find((p) => p.is === "text")?.text ?? part.parts.find((p) => p.is === "json")?.value ?? "";
  const box = lazy("details.tool.result" + (part.failed ? ".failed" : ""),
    [icon("result"), name, part.failed && h("span.badge.bad", null, "failed"), h("span.preview", null, preview(about)),
      h("span.by", null, event.author && h("bdi", null, event.author), h("time", { datetime: event.time, title: exactTime(event.time) }, clockTime(event.time)))],
    () => h("div.tool-body", null, part.parts.map((p) => show(p, event, {}))));
  const pictures = part.parts.filter((p) => p.is === "image");
  if (pictures.length) box.open = true; // an image says nothing while it is folded
  context.pairs?.add("result", part.id, { seq: event.seq, failed: part.failed, time: event.time, meet: (call) => {
    name.textContent = call.name;
    name.title = `called in event ${call.seq}`;
  } });
  return box;
}

// rawButton shows the event as it is stored.
function rawButton(row, event) {
  return h("button.raw", { type: "button", title: "Show the event as JSON", "aria-label": `Show event ${event.seq} as JSON`, onclick: () => {
    const shown = row.querySelector(":scope > .raw-box");
    if (shown) shown.remove();
    else row.append(h("div.raw-box", null, codeBox(stringify(event, 2), "json")));
  } }, icon("braces"));
}
