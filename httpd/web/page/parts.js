// The parts of an event as elements. The server finds them; here they are drawn.
// Everything that comes from the session goes through text nodes, markdown(),
// literal() and safeImage().

import { api, stringify } from "./api.js";
import { languageOf, looksLikeDiff } from "./colour.js";
import { h, icon, toast } from "./dom.js";
import { clockTime, exactTime, number, size, span } from "./format.js";
import { literal } from "./literal.js";
import { codeBox, image, link, markdown, safeImage } from "./markdown.js";

const inlineJSON = 80; // shorter JSON needs no box

// draw makes the elements of an event's parts. The context is { id, pairs, whole },
// whole(event) promises the event with nothing cut.
export function draw(event, context) {
  return event.parts.map((part, i) => one(part, { event, context, path: [i] }));
}

// at says what is drawn: { event, context, path }. The path leads to the part.
function one(part, at) {
  switch (part.type) {
    case "text": return at.literal ? box(part.text ?? "", at, { cut: part.cut, whole: () => wholeText(at) }) : prose(part, at);
    case "thinking": return thinking(part, at);
    case "call": return call(part, at);
    case "result": return result(part, at);
    case "image": return picture(part, at);
    case "file": return file(part, at);
    case "summary": return summary(part, at);
    case "usage": return usage(part.tokens ?? {});
    case "note": return h("p.note", { title: part.detail }, part.name && h("bdi.name", null, part.name), " ", part.text);
    case "deletion": return h("p.note", null, "Item ", h("a", { href: `#/s/${encodeURIComponent(at.context.id)}/${part.seq}` }, number(part.seq)), " was deleted");
  }
  return at.literal && !part.label ? box(part.text ?? "", at, { language: "json", cut: part.cut, whole: () => wholeText(at) }) : json(part, at);
}

// box is literal text; nothing is folded on paper.
const box = (text, at, options) => literal(text, { ...options, open: at.context.print, error: at.context.error });

// wholePart is the part with nothing cut.
async function wholePart(at) {
  let part = { parts: (await at.context.whole(at.event)).parts };
  for (const i of at.path) part = part.parts[i];
  return part;
}

const wholeText = async (at) => (await wholePart(at)).text ?? "";

// prose is what people and models write: Markdown.
function prose(part, at) {
  const text = part.text ?? "";
  const el = h("div.md", null, markdown(text));
  if (part.cut) {
    el.append(h("button.more", { type: "button", onclick: async (e) => {
      e.target.disabled = true;
      try {
        const rest = (await wholeText(at)).slice(text.length);
        e.target.replaceWith(h("pre.plain", { tabindex: "0" }, rest));
      } catch (error) {
        e.target.disabled = false;
        at.context.error?.(error);
      }
    } }, `Show the other ${size(part.cut)}`));
  }
  return el;
}

// lazy is a fold whose content is made when it is opened; on paper it is open.
function lazy(spec, summary, content, at) {
  const details = h(spec, null, h("summary", null, summary));
  if (at.context.print) {
    details.open = true;
    details.append(content());
    return details;
  }
  details.addEventListener("toggle", () => { if (details.open && details.childElementCount === 1) details.append(content()); });
  return details;
}

function thinking(part, at) {
  if (!part.text) return h("p.hidden-thinking", null, "Thinking (hidden by the model)");
  return lazy("details.fold.thinking", [h("b", null, "Thinking"), h("span.preview", null, part.text.slice(0, 200).replace(/[\s*_#`]+/g, " "))], () => prose(part, at), at);
}

function summary(part, at) {
  const range = part.last ? ` of ${number(part.first)}–${number(part.last)}` : "";
  return h("section.summary", null, h("header", null, h("strong", null, "Summary"), range && h("span", null, range),
    at.event.author && h("bdi", null, `by ${at.event.author}`), h("time", { datetime: at.event.time, title: exactTime(at.event.time) }, clockTime(at.event.time))), h("div.body", null, prose(part, at)));
}

// usage is an unobtrusive line of numbers.
function usage(tokens) {
  const short = (n) => (n < 1000 ? String(n) : n < 1e6 ? `${(n / 1000).toFixed(n < 10_000 ? 1 : 0)}k` : `${(n / 1e6).toFixed(1)}M`);
  const counts = [["in", tokens.input], ["cached", tokens.cache_read], ["written to the cache", tokens.cache_write], ["out", tokens.output], ["thinking", tokens.reasoning]].filter(([, n]) => n > 0);
  const exact = counts.map(([name, n]) => `${number(n)} ${name}`).join(", ");
  return h("p.usage", { title: [tokens.model, `tokens: ${exact}`].filter(Boolean).join(" · ") },
    tokens.model && h("bdi", null, tokens.model), counts.length ? counts.filter(([name]) => name !== "written to the cache").map(([name, n]) => `${short(n)} ${name}`).join(" · ") : tokens.total ? `${short(tokens.total)} tokens` : "");
}

// json shows a value of unknown shape, folded unless it is short.
function json(part, at) {
  const text = part.text ?? "";
  if (text.length <= inlineJSON && !part.label && !text.includes("\n")) return h("code.value", null, text);
  return lazy("details.fold.json", [h("b", null, part.label || "JSON"), h("span.preview", null, part.line), h("span.size", null, size(text.length + (part.cut ?? 0)))],
    () => (part.cut ? box(text, at, { language: "json", cut: part.cut, whole: () => wholeText(at) }) : codeBox(text, "json")), at);
}

// picture shows an image that is in the event itself, and is only pixels. One from
// elsewhere would reveal the reader to its host: it becomes a link. A large one is
// loaded when it comes into view.
function picture(part, at) {
  if (part.url?.startsWith(attached)) return harmless.has(part.media_type) ? attachedPicture(part, at) : attachedFile(part, at);
  if (part.cut && !part.url) return laterPicture(part, at);
  const src = safeImage(part.url);
  if (src) return h("figure", null, image(src, part.name));
  if (/^https?:/.test(part.url ?? "")) return h("p.remote", null, "Image, not loaded: ", link(part.url, part.name || part.url.slice(0, 100)));
  return file({ ...part, name: part.name || "image" }, at);
}

// Attachments are fetched with the page's own rights, and shown only if they are pixels.
const attached = "attachment:";
const harmless = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"]);

const blobOf = (part, at) => api.attachment(at.context.id, part.url.slice(attached.length), harmless.has(part.media_type) ? part.media_type : "");

function attachedPicture(part, at) {
  const figure = h("figure.later", null, h("span", null, part.name || "Image"));
  figure.addEventListener("sight", async () => {
    try {
      const url = URL.createObjectURL(await blobOf(part, at));
      const shown = image(url, part.name);
      shown.addEventListener("load", () => URL.revokeObjectURL(url), { once: true });
      shown.addEventListener("error", () => figure.replaceWith(attachedFile(part, at)), { once: true });
      figure.className = "";
      figure.replaceChildren(shown);
    } catch (error) {
      figure.replaceChildren(h("span", null, `The image can't be loaded: ${error.message}`));
    }
  });
  coming.observe(figure);
  return figure;
}

function attachedFile(part, at) {
  const name = part.name || part.url.slice(attached.length, attached.length + 19);
  const save = h("button.save", { type: "button", onclick: async () => {
    save.disabled = true;
    try {
      const url = URL.createObjectURL(await blobOf(part, at));
      const a = h("a", { href: url, download: name });
      a.click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
    } catch (error) {
      toast(`${name} can't be loaded: ${error.message}`);
    }
    save.disabled = false;
  } }, "Save");
  return h("p.file", null, icon("file"), h("bdi", null, name), part.media_type && h("span.quiet", null, part.media_type), save);
}

const coming = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    coming.unobserve(target);
    target.dispatchEvent(new Event("sight"));
  }
}, { rootMargin: "300px" });

function laterPicture(part, at) {
  const figure = h("figure.later", null, h("span", null, `${part.name || "Image"}, ${size(part.cut)}`));
  figure.addEventListener("sight", async () => {
    try {
      const whole = await wholePart(at);
      figure.replaceWith(picture({ ...whole, cut: 0 }, at));
    } catch (error) {
      figure.replaceChildren(h("span", null, `The image can't be loaded: ${error.message}`));
    }
  });
  coming.observe(figure);
  return figure;
}

function file(part, at) {
  if (part.url?.startsWith(attached)) return attachedFile(part, at);
  const about = [part.media_type, part.cut ? size(part.cut) : ""].filter(Boolean).join(", ");
  const remote = /^https?:/.test(part.url ?? "");
  return h("p.file", null, icon("file"), remote ? link(part.url, part.name || part.url.slice(0, 100)) : h("bdi", null, part.name || "file"), about && h("span.quiet", null, about),
    part.text && box(part.text, at, { cut: part.cut, whole: () => wholeText(at) }));
}

// call is a line with the tool's name, and the arguments when it is opened.
function call(part, at) {
  const { event, context } = at;
  const state = h("span.state", null);
  const args = part.args ?? [];
  const line = [icon("tool"), h("bdi.tool-name", null, part.name), h("span.preview", null, part.line), state];
  const el = args.length ? lazy("details.tool.call", line, () => argumentsBox(args, at), at) : h("div.tool.call.bare", null, h("div.summary-line", null, line));
  // The content that a tool reads from a file is in the file's language.
  const language = /read|view|open|cat/i.test(part.name ?? "") ? languageOf(args.find((a) => pathNames.includes(a.name))?.text ?? "") : "";
  context.pairs?.add("call", part.id, { seq: event.seq, name: part.name, language, meet: (result) => {
    const took = new Date(result.time) - new Date(event.time);
    state.className = "state " + (result.failed ? "failed" : "done");
    state.replaceChildren(icon(result.failed ? "cross" : "check"), took > 0 ? span(took) : "");
    state.title = `result: event ${result.seq}`;
  } });
  return el;
}

const pathNames = ["path", "file_path", "filePath", "file", "filename", "notebook_path"];
const shellNames = ["command", "cmd", "script"];

// argumentsBox shows the arguments one by one: short ones on a line each, long ones
// in boxes of their own.
function argumentsBox(args, at) {
  const path = args.find((a) => pathNames.includes(a.name))?.text ?? "";
  const edit = ["old_string", "new_string"].map((name) => args.find((a) => a.name === name && !a.cut));
  const out = h("div.args");
  args.forEach((arg, i) => {
    if (edit[0] && edit[1] && (arg === edit[0] || arg === edit[1])) {
      if (arg === edit[0]) out.append(labelled("change", box(changed(edit[0].text, edit[1].text), at, { language: "diff" })));
      return;
    }
    const short = arg.text.length <= 100 && !arg.text.includes("\n") && !arg.cut;
    if (short && !shellNames.includes(arg.name)) {
      out.append(labelled(arg.name, h("code.value", null, arg.text)));
      return;
    }
    const language = arg.json ? "json" : shellNames.includes(arg.name) ? "sh" : arg.name === "sql" ? "sql" : looksLikeDiff(arg.text) ? "diff" : languageOf(path) || languageOf(`x.${(arg.name ?? "").toLowerCase()}`);
    out.append(labelled(arg.name, box(arg.text, at, { language, cut: arg.cut, whole: async () => (await wholePart(at)).args[i].text })));
  });
  return out;
}

const labelled = (name, value) => h("div.arg" + (value.classList.contains("literal-box") ? ".tall" : ""), null, name && h("span.arg-name", null, name), value);

// changed is an edit as a diff.
function changed(before, after) {
  const lines = (text, mark) => (text === "" ? "" : text.replace(/\n$/, "").split("\n").map((line) => mark + line).join("\n") + "\n");
  return lines(before, "-") + lines(after, "+");
}

// result is what a tool returned, verbatim.
function result(part, at) {
  const { event, context } = at;
  const name = h("bdi.tool-name", null, part.name || "result");
  const inner = (part.parts ?? []).map((p, i) => one(p, { ...at, path: [...at.path, i], literal: true }));
  const el = h("div.tool.result" + (part.failed ? ".failed" : ""), null,
    h("header", null, icon("result"), name, part.failed && h("span.badge.bad", null, "failed"),
      h("span.by", null, event.author && h("bdi", null, event.author), h("time", { datetime: event.time, title: exactTime(event.time) }, clockTime(event.time)))),
    h("div.tool-body", null, inner.length ? inner : h("p.quiet", null, "No output")));
  context.pairs?.add("result", part.id, { seq: event.seq, failed: part.failed, time: event.time, meet: (call) => {
    name.textContent = call.name;
    name.title = `called in event ${call.seq}`;
    if (call.language && !part.failed) for (const box of inner) box.recolour?.(call.language);
  } });
  return el;
}

// storedBox shows an event as it is stored.
export const storedBox = (event) => codeBox(stringify(event, 2), "json");
