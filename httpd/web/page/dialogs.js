// Dialogs that change the store: a new session, its title and labels, its end.

import { api, newKey } from "./api.js";
import { h, icon } from "./dom.js";
import { number } from "./format.js";

// ask opens a dialog with a form and returns it. done() is called when it is
// submitted; if it throws, the dialog shows the error and stays open.
function ask({ title, fields, submit, spec = "button.primary", done }) {
  const say = h("p.say", { role: "alert" });
  const button = h(spec, { type: "submit" }, submit);
  const form = h("form", { method: "dialog" }, h("h2", null, title), ...fields, say,
    h("div.choices", null, h("button.secondary", { type: "button", onclick: () => dialog.close() }, "Cancel"), button));
  const dialog = h("dialog.box", { "aria-label": title }, form);
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    button.disabled = true;
    try {
      await done();
      dialog.close();
    } catch (error) {
      say.replaceChildren(h("span", null, error.message), error.hint ? h("span.hint", null, error.hint) : "");
    } finally {
      button.disabled = false;
    }
  });
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (e) => { if (e.target === dialog) dialog.close(); });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

let fieldCount = 0;

function field(label, input, hint) {
  input.id = `field-${++fieldCount}`;
  return h("div.field-row", null, h("label", { for: input.id }, label), input, hint && h("p.hint", null, hint));
}

// LabelFields is a list of labels that can be changed.
class LabelFields {
  #rows = h("div.label-rows");

  constructor(labels) {
    for (const [name, value] of Object.entries(labels)) this.#add(name, value);
    this.el = h("fieldset.labels-edit", null, h("legend", null, "Labels"), this.#rows,
      h("button.secondary.add", { type: "button", onclick: () => this.#add("", "").firstChild.focus() }, icon("plus"), "Add a label"));
  }

  #add(name, value) {
    const row = h("div.label-row", null,
      h("input", { type: "text", value: name, placeholder: "name", "aria-label": "Name of the label", maxlength: "128", autocomplete: "off", spellcheck: "false" }),
      h("span", { "aria-hidden": "true" }, "="),
      h("input", { type: "text", value, placeholder: "value", "aria-label": "Value of the label", autocomplete: "off", spellcheck: "false" }),
      h("button.quiet", { type: "button", "aria-label": "Remove this label", onclick: () => row.remove() }, icon("cross")));
    this.#rows.append(row);
    return row;
  }

  get value() {
    const out = {};
    for (const row of this.#rows.children) {
      const [name, value] = [...row.querySelectorAll("input")].map((i) => i.value.trim());
      if (name === "" && value === "") continue;
      if (name === "") throw new Error(`The label with the value “${value}” has no name.`);
      if (Object.hasOwn(out, name)) throw new Error(`There are two labels called “${name}”.`);
      out[name] = value;
    }
    return out;
  }
}

// newSession creates a session and passes on its id.
export function newSession(made) {
  const title = h("input", { type: "text", placeholder: "What it is about", autocomplete: "off", maxlength: "500" });
  const id = h("input", { type: "text", placeholder: "made up when empty", autocomplete: "off", spellcheck: "false", maxlength: "128" });
  const labels = new LabelFields({});
  ask({ title: "New session", submit: "Create", fields: [field("Title", title), field("Id", id, "Letters, digits and . _ - : @ + ~; it stays."), labels.el], done: async () => {
    const given = { labels: labels.value };
    if (title.value.trim()) given.title = title.value.trim();
    if (id.value.trim()) given.id = id.value.trim();
    made((await api.create(given)).id);
  } });
  title.focus();
}

// editSession changes the title and the labels.
export function editSession(info, changed) {
  const title = h("input", { type: "text", value: info.title, placeholder: info.id, autocomplete: "off", maxlength: "500" });
  const labels = new LabelFields(info.labels ?? {});
  const key = newKey();
  ask({ title: "Title and labels", submit: "Save", fields: [field("Title", title), labels.el], done: async () => {
    const before = info.labels ?? {}, after = labels.value;
    const patch = {};
    if (title.value.trim() !== info.title) patch.title = title.value.trim();
    const diff = {};
    for (const name of Object.keys(before)) if (!Object.hasOwn(after, name)) diff[name] = null;
    for (const [name, value] of Object.entries(after)) if (before[name] !== value) diff[name] = value;
    if (Object.keys(diff).length) patch.labels = diff;
    if (Object.keys(patch).length) await api.change(info.id, patch, key);
    changed();
  } });
  title.focus();
  title.select();
}

// deleteSession asks for confirmation, and deletes.
export function deleteSession(info, gone) {
  const dialog = ask({ title: "Delete this session?", submit: "Delete", spec: "button.danger", fields: [
    h("p", null, h("bdi.name", null, info.title || info.id), info.title ? h("code.id", null, info.id) : ""),
    h("p.hint", null, `${number(info.last_seq)} event${info.last_seq === 1 ? "" : "s"} will be gone for everybody, and the id can't be used again. Nothing brings it back.`),
  ], done: async () => {
    await api.remove(info.id);
    gone();
  } });
  dialog.querySelector(".secondary").focus();
}

// The formats of an export, as the server names them.
const exportFormats = [["html", "Web page, to read or print"], ["md", "Markdown"], ["jsonl", "Everything, for hansard import"], ["openai", "OpenAI messages"],
  ["anthropic", "Anthropic messages"], ["claude", "Claude Code"], ["codex", "Codex"], ["cleveragents", "cleveragents"]];

// exportSession lets the reader save a session as a file.
export function exportSession(info) {
  const format = h("select", null, exportFormats.map(([value, text]) => h("option", { value }, text)));
  ask({
    title: "Export", submit: "Save", fields: [field("As", format)],
    done: async () => {
      const { blob, name } = await api.exported(info.id, format.value);
      const url = URL.createObjectURL(blob);
      h("a", { href: url, download: name }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
    },
  });
}
