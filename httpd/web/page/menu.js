// Menu is a button with a list of actions.

import { h, icon } from "./dom.js";

export class Menu {
  #choices; #button; #list = null; #stop;

  // choices() returns [[icon, text, key, act], …] each time the menu is opened.
  constructor(label, choices, name = "More") {
    this.#choices = choices;
    this.#button = h("button.menu-button", { type: "button", title: label, "aria-label": name, "aria-haspopup": "menu", "aria-expanded": "false", onclick: () => (this.#list ? this.close() : this.open()) }, icon("more"));
    this.el = h("div.menu", null, this.#button);
  }

  open() {
    this.#list = h("div.menu-list", { role: "menu" }, this.#choices().map(([shape, text, key, act]) =>
      h("button", { type: "button", role: "menuitem", tabindex: "-1", onclick: () => { this.close(); act(); } }, icon(shape), h("span", null, text), key && h("kbd", null, key))));
    this.#list.addEventListener("keydown", (e) => this.#pressed(e));
    this.el.append(this.#list);
    this.#button.setAttribute("aria-expanded", "true");
    this.#list.firstChild.focus();
    this.#stop = new AbortController();
    addEventListener("pointerdown", (e) => { if (!this.el.contains(e.target)) this.close(false); }, { signal: this.#stop.signal, capture: true });
  }

  close(focus = true) {
    if (!this.#list) return;
    this.#stop.abort();
    this.#list.remove();
    this.#list = null;
    this.#button.setAttribute("aria-expanded", "false");
    if (focus) this.#button.focus();
  }

  #pressed(e) {
    const items = [...this.#list.children];
    const at = items.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[e.key];
    if (to !== undefined) items.at(to % items.length).focus();
    else if (e.key === "Escape" || e.key === "Tab") this.close();
    else if (e.key !== "Enter" && e.key !== " ") return;
    if (e.key !== "Enter" && e.key !== " ") e.preventDefault();
    e.stopPropagation();
  }
}
