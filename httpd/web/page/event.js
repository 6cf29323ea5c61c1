// One event as an element: who, when, and its parts.

import { api } from "./api.js";
import { copy, h, icon, toast } from "./dom.js";
import { clockTime, day, exactTime, number } from "./format.js";
import { draw, storedBox } from "./parts.js";

// eventRow makes the row of an event. Its context is { id, pairs, deleted, error, fork, whole }.
export function eventRow(event, context) {
  const deletedBy = context.deleted?.get(event.seq);
  const row = h("article.event" + (deletedBy ? ".deleted" : ""), { tabindex: "-1", dataset: { seq: event.seq, kind: kinds.has(event.kind) ? event.kind : "other", voice: event.voice } });
  row.append(h("a.seq", { href: `#/s/${encodeURIComponent(context.id)}/${event.seq}`, title: about(event), "aria-label": `Event ${event.seq}` }, number(event.seq)));
  try {
    const content = body(event, context, deletedBy);
    if (content.classList.contains("aside")) row.classList.add("between");
    if (!content.querySelector(".who")) row.classList.add("headless");
    row.append(content, ...changes(event));
  } catch (error) {
    // An error in one event must not hide the others.
    row.append(h("p.aside", null, `This event can't be shown: ${error.message}. `, h("code", null, `hansard show ${context.id} --after ${event.seq - 1} --limit 1`), " prints it."));
  }
  row.append(h("div.actions", null, linkButton(event, context), context.fork && forkButton(event, context), rawButton(row, event, context)));
  return row;
}

// about shows what is known of an event besides its content.
function about(event) {
  const facts = [`Event ${event.seq}, ${exactTime(event.time)}`];
  if (event.stored) facts.push(`stored ${exactTime(event.stored)}`);
  if (event.by) facts.push(`written with the token ${event.by}`);
  if (event.id) facts.push(`id ${event.id}`);
  return facts.join(", ");
}

// A set and not an object: a kind may be called "constructor".
const kinds = new Set(["message", "tool_call", "tool_result", "summary", "turn", "meta", "item_deleted"]);
const notes = new Set(["note", "deletion", "usage"]);

function body(event, context, deletedBy) {
  if (deletedBy) return deletedRow(event, context, deletedBy);
  const parts = draw(event, context);
  if (event.parts.length && event.parts.every((p) => notes.has(p.type))) return h("div.aside", null, parts, timeOf(event));
  if (event.kind === "meta" && !event.parts.length) {
    return h("p.aside", null, event.author && h("bdi.name", null, event.author), event.author ? " changed the session" : "The session was changed", " ", timeOf(event));
  }
  // Results name their tool on their own line: a tool is not a speaker; nor is a
  // record that a tool keeps for itself.
  const record = !event.role && !event.author && event.parts.every((p) => p.type === "json" && p.label);
  const summed = event.parts.every((p) => p.type === "summary");
  const bare = event.voice === "tool" || (record || summed) && event.parts.length > 0;
  const content = event.aside ? [contextBox(event, parts, Boolean(context.print))] : parts;
  return h("div.speech" + (event.aside ? ".context" : ""), null, !bare && head(event), h("div.body", null, content));
}

// contextBox folds what a tool tells the model in the user's name.
const contextBox = (event, parts, open) => h("details.fold", { open }, h("summary", null, h("b", null, "Context for the model"), h("span.preview", null, (event.parts[0]?.text ?? "").slice(0, 200))), ...parts);

// deletedRow is an item that was deleted through the OpenAI routes: the log still
// has it, and so does this row, but folded.
function deletedRow(event, context, by) {
  const box = h("details.fold.gone", null, h("summary", null, icon("trash"), h("span", null, "Deleted")));
  box.addEventListener("toggle", () => { if (box.open && box.childElementCount === 1) box.append(h("div.body", null, draw(event, context))); });
  return h("div.speech", null, head(event), h("div.body", null, box,
    h("p.note", null, "in ", h("a", { href: `#/s/${encodeURIComponent(context.id)}/${by}` }, `event ${number(by)}`))));
}

const timeOf = (event) => h("time", { datetime: event.time, title: exactTime(event.time) }, clockTime(event.time));

// place sets what depends on the previous events: the day, and whether the same
// speaker continues. spoke is the last event that was not the result of a tool.
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

// answers returns whether an event is only what a tool returned.
export const answers = (event) => event.voice === "tool";

const speech = (event) => !["turn", "meta", "summary", "item_deleted"].includes(event.kind);
export const speaker = (event) => event.author || event.role || event.kind;

// head shows who wrote the event and when.
function head(event) {
  const name = speaker(event);
  return h("header.who", null,
    h("span.avatar." + hue(name), { "aria-hidden": "true" }, [...name][0]?.toUpperCase() ?? "?"),
    h("bdi.name", null, name),
    event.role && event.role !== name && h("bdi.role", null, event.role),
    event.kind !== "message" && event.kind !== name && !kinds.has(event.kind) && h("bdi.kind", null, event.kind),
    event.inbox && h("span.badge.inbox", { title: "Left to the holder of the turn to take up" }, "inbox"),
    timeOf(event));
}

// hue is one of twelve colours, the same for a name everywhere.
export function hue(name) {
  let sum = 7;
  for (const c of name) sum = (sum * 31 + c.codePointAt(0)) >>> 0;
  return "hue" + (sum % 12);
}

// changes returns the lines about metadata that was committed with an event.
function changes(event) {
  const patch = event.patch;
  if (!patch) return [];
  const lines = [];
  if (patch.title !== undefined && patch.title !== null) lines.push(h("li", null, "title ", h("bdi.value", null, patch.title || "(none)")));
  for (const [name, value] of Object.entries(patch.labels ?? {})) {
    lines.push(value === null ? h("li", null, "label ", h("bdi.value", null, name), " removed") : h("li", null, "label ", h("bdi.value", null, `${name}=${value}`)));
  }
  if (patch.state !== undefined && patch.state !== null) lines.push(h("li", null, h("details.fold.json", null, h("summary", null, h("b", null, "state"), " changed"), storedBox(patch.state))));
  if (patch.state_ops?.length) lines.push(h("li", null, h("details.fold.json", null, h("summary", null, h("b", null, "state"), " changed"), storedBox(patch.state_ops))));
  return lines.length ? [h("ul.patch", { "aria-label": "Changes of the session" }, lines)] : [];
}

// linkTo returns the address of an event, without the list's search.
export const linkTo = (id, seq) => `${location.origin}${location.pathname}#/s/${encodeURIComponent(id)}/${seq}`;

export async function copyLink(id, seq) {
  const done = await copy(linkTo(id, seq));
  toast(done ? `The link to event ${number(seq)} is copied.` : "The browser did not let the page copy.");
}

function linkButton(event, context) {
  return h("button.act", { type: "button", title: "Copy a link to this event (y)", "aria-label": `Copy a link to event ${event.seq}`, onclick: () => copyLink(context.id, event.seq) }, icon("link"));
}

// forkButton makes a session that continues from this event, or from the end of its batch.
function forkButton(event, context) {
  return h("button.act.fork", { type: "button", title: "Fork from here: a new session with the history up to this event", "aria-label": `Fork from event ${event.seq}`, onclick: () => context.fork(event.seq) }, icon("fork"));
}

// rawButton shows the event as it is stored.
function rawButton(row, event, context) {
  return h("button.act.raw", { type: "button", title: "Show the event as JSON", "aria-label": `Show event ${event.seq} as JSON`, onclick: async () => {
    const shown = row.querySelector(":scope > .raw-box");
    if (shown) return shown.remove();
    try {
      const stored = await api.stored(context.id, event.seq);
      if (!row.querySelector(":scope > .raw-box")) row.append(h("div.raw-box", null, storedBox(stored)));
    } catch (error) {
      context.error?.(error);
    }
  } }, icon("braces"));
}

// toggleFolds opens what is folded in a row, or folds it all again.
export function toggleFolds(row) {
  const folds = [...row.querySelectorAll("details")];
  const boxes = [...row.querySelectorAll("button.unfold")];
  const closed = folds.some((d) => !d.open) || boxes.some((b) => b.getAttribute("aria-expanded") === "false");
  for (const d of folds) d.open = closed;
  for (const b of boxes) if ((b.getAttribute("aria-expanded") === "true") !== closed) b.click();
  return folds.length + boxes.length > 0;
}

// holderName is the name of a turn's holder, for people.
export function holderName(holder) {
  return holder?.label || (holder?.pid ? `pid ${holder.pid}` : "") || "somebody";
}
