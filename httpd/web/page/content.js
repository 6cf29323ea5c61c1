// What is in an event's data. Agents of all kinds keep their own shapes there; this
// finds the parts that people want to read in those of the common ones, and leaves
// the rest as JSON. Nothing is guessed at the price of hiding something: an object
// with members that are not understood is shown whole.

import { safeImage } from "./markdown.js";

// A part is one of
//   { is: "text", text }                    markdown
//   { is: "thinking", text }
//   { is: "image", src, alt } · { is: "remote", url, alt }
//   { is: "call", id, name, input }         a tool is called
//   { is: "result", id, name, parts, failed }
//   { is: "json", value, label }

// parts reads the data of an event of a kind.
export function parts(data, kind) {
  if (kind === "tool_call" || kind === "tool_result") {
    const own = kind === "tool_call" ? calls(data) : results(data);
    if (own.length) return own;
  }
  if (kind === "summary" && isObject(data)) {
    const text = first(data, "text", "summary", "content");
    if (typeof text === "string") return [{ is: "text", text }, ...rest(data, "text", "summary", "content", ...covering)];
  }
  return read(data) ?? [json(data)];
}

// covering are the members by which a summary names the events it covers.
const covering = ["from", "to", "first", "last", "range", "covers", "after", "through"];

// covered is the range of seqs that a summary covers, as text, or nothing.
export function covered(data) {
  if (!isObject(data)) return "";
  const range = data.range ?? data.covers;
  if (Array.isArray(range) && range.length === 2) return `${text(range[0])}–${text(range[1])}`;
  const object = isObject(range) ? range : data;
  const from = first(object, "from", "first", "after"), to = first(object, "to", "last", "through");
  return Number.isFinite(from) && Number.isFinite(to) ? `${from}–${to}` : "";
}

// roleOf is the role a message in the data has, for events that do not say.
export function roleOf(data) {
  return isObject(data) && typeof data.role === "string" ? data.role : "";
}

// preview is the beginning of a value on one line.
export function preview(value, length = 120) {
  let line;
  if (typeof value === "string") line = value;
  else if (isObject(value) && Object.keys(value).length <= 6) {
    line = Object.entries(value).map(([k, v]) => `${k}: ${typeof v === "string" ? v.slice(0, length) : stringify(v)}`).join(", ");
  } else line = value === undefined ? "" : stringify(value);
  line = line.slice(0, length * 4).replace(/\s+/g, " ").trim();
  return line.length > length ? line.slice(0, length) + "…" : line;
}

export const stringify = (value, indent) => JSON.stringify(value, null, indent) ?? "";

const isObject = (v) => v !== null && typeof v === "object" && !Array.isArray(v) && !(JSON.isRawJSON?.(v));
const text = (v) => (typeof v === "string" ? v : stringify(v));
const json = (value, label) => ({ is: "json", value, label });
const first = (object, ...names) => { for (const n of names) if (object[n] !== undefined && object[n] !== null) return object[n]; };

// rest is what an object has besides the members that were understood.
function rest(object, ...known) {
  const left = Object.entries(object).filter(([k, v]) => !known.includes(k) && v !== null && !(Array.isArray(v) && v.length === 0));
  return left.length ? [json(Object.fromEntries(left), "more")] : [];
}

// plumbing are members that say nothing a reader would miss.
const plumbing = ["type", "role", "id", "name", "status", "object", "model", "stop_reason", "stop_sequence", "usage", "cache_control",
  "annotations", "logprobs", "phase", "created_at", "refusal", "audio", "function_call"];

// read gives the parts of a value, or null when its shape is not known.
function read(value) {
  if (typeof value === "string") return [{ is: "text", text: value }];
  if (Array.isArray(value)) {
    // A list of strings may be a list of anything; parts say what they are.
    if (value.length === 0 || !value.every((v) => isObject(v) && typeof v.type === "string")) return null;
    return value.flatMap((v) => part(v) ?? read(v) ?? [json(v, v.type)]);
  }
  if (!isObject(value)) return null;
  return part(value) ?? message(value);
}

// message reads {"text"}, {"content"} and what chat APIs put around them.
function message(value) {
  const body = value.content !== undefined ? "content" : typeof value.text === "string" ? "text" : typeof value.message === "string" ? "message" : null;
  const calling = Array.isArray(value.tool_calls) ? value.tool_calls.flatMap(calls) : [];
  if (body === null && !calling.length) return null;
  if (typeof value.tool_call_id === "string" && body) return results(value);
  let inner = body === null || value[body] === null ? [] : read(value[body]);
  if (inner === null) return null;
  if (typeof value.refusal === "string") inner = [...inner, { is: "text", text: value.refusal }];
  const legacy = isObject(value.function_call) ? calls(value.function_call) : [];
  const thinking = typeof value.reasoning_content === "string" ? [{ is: "thinking", text: value.reasoning_content }] : [];
  return [...thinking, ...inner, ...calling, ...legacy, ...rest(value, body, "tool_calls", "reasoning_content", ...plumbing)];
}

// part reads one item of a content array, or one item of a conversation.
function part(value) {
  switch (value.type) {
    case "text": case "input_text": case "output_text": case "summary_text": case "reasoning_text":
      return typeof value.text === "string" ? [{ is: "text", text: value.text }] : null;
    case "refusal":
      return typeof value.refusal === "string" ? [{ is: "text", text: value.refusal }] : null;
    case "thinking":
      return [{ is: "thinking", text: text(value.thinking ?? "") }];
    case "redacted_thinking":
      return [{ is: "thinking", text: "" }];
    case "reasoning":
      return [{ is: "thinking", text: [value.summary, value.content].flat().map((s) => s?.text).filter((s) => typeof s === "string").join("\n\n") }];
    case "image": case "image_url": case "input_image":
      return picture(value);
    case "tool_use": case "function_call": case "server_tool_use": case "mcp_call": case "custom_tool_call": case "tool_call": case "tool-call":
      return calls(value);
    case "tool_result": case "function_call_output": case "custom_tool_call_output": case "mcp_tool_result": case "tool-result":
      return results(value);
  }
  return null;
}

function picture(value) {
  const source = isObject(value.source) ? value.source : null;
  const url = source?.type === "base64" ? `data:${source.media_type};base64,${source.data}`
    : source?.url ?? (isObject(value.image_url) ? value.image_url.url : value.image_url)
    ?? (typeof value.data === "string" ? `data:${value.mimeType ?? value.media_type};base64,${value.data}` : undefined);
  if (typeof url !== "string") return null;
  const alt = typeof value.alt === "string" ? value.alt : "";
  const src = safeImage(url);
  return [src ? { is: "image", src, alt } : { is: "remote", url, alt }];
}

// calls reads a call of a tool, or several.
function calls(value) {
  if (Array.isArray(value)) return value.flatMap(calls);
  if (!isObject(value)) return [];
  if (Array.isArray(value.tool_calls)) return value.tool_calls.flatMap(calls);
  if (Array.isArray(value.content) && value.content.some((c) => c?.type === "tool_use")) return read(value.content) ?? [];
  const fn = isObject(value.function) ? value.function : value;
  const name = first(fn, "name", "tool", "tool_name", "toolName", "function");
  if (typeof name !== "string") return [];
  const named = ["arguments", "args", "input", "parameters", "params"].find((k) => fn[k] !== undefined);
  const known = ["name", "tool", "tool_name", "toolName", "function", "type", "id", "call_id", "tool_call_id", "tool_use_id", "toolCallId", "status", "index"];
  const input = named ? unpacked(fn[named]) : Object.fromEntries(Object.entries(fn).filter(([k]) => !known.includes(k)));
  return [{ is: "call", id: callID(value), name, input }];
}

// results reads the result of a tool.
function results(value) {
  if (Array.isArray(value)) {
    const all = value.map((v) => (isObject(v) && callID(v, true) ? results(v) : null));
    return all.every(Boolean) ? all.flat() : [{ is: "result", id: "", name: "", parts: read(value) ?? [json(value)], failed: false }];
  }
  if (!isObject(value)) return [{ is: "result", id: "", name: "", parts: [json(value)].map((p) => (typeof value === "string" ? { is: "text", text: value } : p)), failed: false }];
  if (Array.isArray(value.content) && value.content.some((c) => c?.type === "tool_result")) return read(value.content) ?? [];
  const known = ["type", "role", "id", "call_id", "tool_call_id", "tool_use_id", "toolCallId", "name", "tool", "tool_name", "toolName", "is_error", "isError", "status", "cache_control"];
  const named = ["output", "result", "content", "response", "text", "error"].find((k) => value[k] !== undefined && value[k] !== null);
  const body = named ? unpacked(value[named]) : Object.fromEntries(Object.entries(value).filter(([k]) => !known.includes(k)));
  const failed = value.is_error === true || value.isError === true || value.error !== undefined && value.error !== null && value.error !== false || value.status === "error" || value.status === "failed";
  const inner = typeof body === "string" ? [{ is: "text", text: body }] : read(body) ?? [json(body)];
  const more = named ? rest(value, named, ...known) : [];
  const name = first(value, "name", "tool", "tool_name", "toolName");
  return [{ is: "result", id: callID(value, true), name: typeof name === "string" ? name : "", parts: [...inner, ...more], failed }];
}

// callID is by what a result names its call. In a result "id" is often its own.
function callID(value, result = false) {
  const id = result ? first(value, "tool_call_id", "tool_use_id", "call_id", "toolCallId", "id")
    : first(value, "call_id", "tool_call_id", "toolCallId", "tool_use_id", "id");
  return typeof id === "string" || typeof id === "number" ? String(id) : "";
}

// unpacked reads JSON in a string, as chat APIs give arguments.
function unpacked(value) {
  if (typeof value !== "string" || !/^\s*[[{]/.test(value)) return value;
  try { return JSON.parse(value); } catch { return value; }
}
