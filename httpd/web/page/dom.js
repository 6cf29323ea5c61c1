// Making elements. Content only ever becomes text nodes and plain attributes:
// nothing in this page parses markup.

// h makes an element: h("a.name", { href }, "text", child). Properties that begin
// with "on" are listeners; "dataset" is an object; false and null leave a thing out.
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

// copyButton copies what text() gives and says so.
export function copyButton(text, label = "Copy") {
  const button = h("button.copy", { type: "button", "aria-label": label, title: label }, icon("copy"));
  button.addEventListener("click", async (event) => {
    event.preventDefault();
    event.stopPropagation();
    const done = await copy(text());
    button.replaceChildren(icon(done ? "check" : "cross"));
    announce(done ? "Copied" : "The browser did not let the page copy");
    setTimeout(() => button.replaceChildren(icon("copy")), 1500);
  });
  return button;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

// announce tells people who do not see the page.
export function announce(text) {
  document.getElementById("announce").textContent = text;
}

// notice shows an error, with what to do about it, until it is closed.
export function notice(error) {
  const box = h("div.notice", null,
    h("p", null, error.message ?? String(error)),
    error.hint && h("p.hint", null, error.hint),
    h("button.quiet", { type: "button", "aria-label": "Close", onclick: () => box.remove() }, icon("cross")));
  const all = document.getElementById("notices");
  for (const old of all.children) if (old.textContent === box.textContent) old.remove();
  all.append(box);
  while (all.children.length > 4) all.firstChild.remove();
  return box;
}
