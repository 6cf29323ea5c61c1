// Making elements. Content only ever becomes text nodes and plain attributes:
// nothing in this page parses markup.

// h makes an element: h("a.name", { href }, "text", child). Properties that begin
// with "on" are listeners; "dataset" is an object; false and null leave a property out.
export function h(spec, props, ...children) {
  const [tag, ...classes] = spec.split(".");
  const el = document.createElement(tag || "div");
  if (classes.length) el.className = classes.join(" ");
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) el.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(el.dataset, value);
    else el.setAttribute(name, value === true ? "" : value);
  }
  el.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return el;
}

const svgNamespace = "http://www.w3.org/2000/svg";

const shapes = {
  back: "M15 5l-7 7 7 7",
  down: "M12 5v14M6 13l6 6 6-6",
  up: "M12 19V5M6 11l6-6 6 6",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  check: "M5 13l4 4L19 7",
  cross: "M6 6l12 12M18 6L6 18",
  tool: "M14.5 6.5a4 4 0 0 0-5.2 5.2L4 17v3h3l5.3-5.3a4 4 0 0 0 5.2-5.2L15 12l-3-3z",
  result: "M6 5v7a3 3 0 0 0 3 3h10M15 11l4 4-4 4",
  braces: "M8 4c-3 0-2 4-2 6s-2 2-2 2 2 0 2 2-1 6 2 6M16 4c3 0 2 4 2 6s2 2 2 2-2 0-2 2 1 6-2 6",
  moon: "M20 14.5A8 8 0 0 1 9.5 4a8 8 0 1 0 10.5 10.5z",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M5 19l1.4-1.4M17.6 6.4L19 5",
  help: "M9 9a3 3 0 1 1 4.5 2.6c-.9.6-1.5 1.1-1.5 2.4M12 17.5v.01",
  warning: "M12 4L2.5 20h19zM12 10v4M12 17v.01",
  file: "M6 3h8l5 5v13H6zM14 3v5h5",
  fork: "M7 4v16M7 12c6 0 10-1 10-6M17 6V4M4 7l3-3 3 3M14 7l3-3 3 3",
  link: "M10 14a4 4 0 0 0 6 .5l3-3a4 4 0 0 0-5.6-5.6L12 7.3M14 10a4 4 0 0 0-6-.5l-3 3a4 4 0 0 0 5.6 5.6L12 16.7",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  plus: "M12 5v14M5 12h14",
  search: "M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM15.5 15.5L20 20",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13",
  key: "M15 9a4 4 0 1 0-3.6 4L13 14.5h2V17h2.5v2.5H21V16l-5.4-5.4A4 4 0 0 0 15 9z",
};

// icon draws one of the shapes.
export function icon(name) {
  const svg = document.createElementNS(svgNamespace, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(svgNamespace, "path");
  path.setAttribute("d", shapes[name]);
  svg.append(path);
  return svg;
}

// copyButton copies what text() returns, or promises, and confirms it.
export function copyButton(text, label = "Copy", shape = "copy") {
  const button = h("button.copy", { type: "button", "aria-label": label, title: label }, icon(shape));
  button.addEventListener("click", async (event) => {
    event.preventDefault();
    event.stopPropagation();
    let done = false;
    try { done = await copy(await text()); } catch { /* the text could not be loaded */ }
    button.replaceChildren(icon(done ? "check" : "cross"));
    announce(done ? "Copied" : "The browser did not let the page copy");
    setTimeout(() => button.replaceChildren(icon(shape)), 1500);
  });
  return button;
}

// Characters that change the direction of the text after them: they can make a line
// read differently from what is stored.
const turning = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/;
const turningMax = 2000; // elements are costly; past this many the rest is replaced

// showTurning makes such characters in an element's text visible, and disables their
// effect. The text stays the same.
export function showTurning(el) {
  if (!turning.test(el.textContent)) return el;
  const walker = document.createTreeWalker(el, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) if (turning.test(walker.currentNode.data)) found.push(walker.currentNode);
  let left = turningMax;
  for (const node of found) {
    node.replaceWith(...node.data.split(new RegExp(`(${turning.source})`)).filter(Boolean).map((piece) => {
      if (!turning.test(piece)) return piece;
      return left-- > 0 ? h("span.turning", { "data-code": "U+" + piece.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") }, h("span", { hidden: true }, piece)) : "\ufffd";
    }));
  }
  return el;
}

// copy puts text on the clipboard, and returns whether it succeeded.
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

// announce tells people who use a screen reader.
export function announce(text) {
  document.getElementById("announce").textContent = text;
}

// Where the reader last did something: a notice about it goes to the other half of
// the page, so that it never covers the button that caused it.
let acted = 0;
const noteAct = (e) => {
  const box = e.target?.getBoundingClientRect?.();
  acted = e.type === "pointerdown" || !box ? e.clientY ?? acted : (box.top + box.bottom) / 2;
};
addEventListener("pointerdown", noteAct, { capture: true, passive: true });
addEventListener("keydown", noteAct, { capture: true, passive: true });

// notice shows an error, with its hint, until it is closed.
export function notice(error) { return show(error, "notice"); }

// toast shows briefly that something was done.
export function toast(text) {
  const box = show({ message: text }, "notice.toast");
  setTimeout(() => box.remove(), 4_000);
  return box;
}

function show(error, spec) {
  const box = h(`div.${spec}`, null,
    h("p", null, error.message ?? String(error)),
    error.hint && h("p.hint", null, error.hint),
    h("button.quiet", { type: "button", "aria-label": "Close", onclick: () => box.remove() }, icon("cross")));
  const all = document.getElementById("notices");
  all.classList.toggle("above", acted > innerHeight / 2);
  // Nor may it cover the send button, nor the one that leads to the end.
  const transcript = document.querySelector(".transcript")?.getBoundingClientRect();
  all.style.setProperty("--clear", transcript ? `${innerHeight - transcript.bottom + 46}px` : "0px");
  for (const old of all.children) if (old.textContent === box.textContent) old.remove();
  all.append(box);
  while (all.children.length > 3) all.firstChild.remove();
  return box;
}
