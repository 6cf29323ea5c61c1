// The search over the events of all sessions, or of the open one: the server finds
// the hits, the page shows them with the matches marked, and links to them.

import { api } from "./api.js";
import { announce, h, icon, showTurning } from "./dom.js";
import { ago, exactTime, number } from "./format.js";

const pause = 250; // after the last key
const pageHits = 20;

// searchDialog asks for words and shows the hits. open is the open session, or null; go
// is called with the address of the chosen hit.
export function searchDialog(open, go) {
  let asked = null, timer = 0, count = 0;
  const input = h("input.search", { type: "search", placeholder: "Words, “phrases”, begin*", "aria-label": "Search events", autocomplete: "off", spellcheck: "false", enterkeyhint: "search" });
  const only = h("input", { type: "checkbox" });
  const said = h("p.foot", { role: "status" });
  const hits = h("ol.hits", { "aria-label": "Events found, best matches first" });
  const more = h("button.action", { type: "button", hidden: true, onclick: () => ask(count) }, "More");
  const dialog = h("dialog.search-events", { "aria-label": "Search events" },
    h("form", { method: "dialog", role: "search", onsubmit: (e) => { e.preventDefault(); now(); } }, input,
      h("button.quiet", { type: "button", title: "Close (Esc)", "aria-label": "Close", onclick: () => dialog.close() }, icon("cross"))),
    open && h("label.only", null, only, " only in ", h("bdi", null, open)),
    hits, said, more);

  async function ask(offset) {
    clearTimeout(timer);
    asked?.abort();
    const mine = (asked = new AbortController());
    const q = input.value.trim();
    if (offset === 0) { hits.replaceChildren(); count = 0; }
    more.hidden = true;
    said.textContent = q ? "Searching…" : "";
    if (!q) return;
    try {
      const page = await api.search({ q, offset, limit: pageHits, ...(open && only.checked ? { in: open } : {}) }, mine.signal);
      if (mine.signal.aborted) return;
      count += page.hits.length;
      hits.append(...page.hits.map((hit) => row(hit)));
      more.hidden = !page.more;
      said.textContent = count ? `${number(count)}${page.more ? " and more" : ""} event${count === 1 ? "" : "s"} found` : "Nothing found";
      announce(said.textContent);
    } catch (error) {
      if (!mine.signal.aborted) said.textContent = error.message;
    }
  }

  // now searches for the typed text at once; the second time it opens the best hit.
  function now() {
    if (timer) { timer = 0; ask(0); } else hits.querySelector("a")?.click();
  }

  function row(hit) {
    const href = `#/s/${encodeURIComponent(hit.session)}/${hit.seq}`;
    return h("li", null, h("a", { href, onclick: (e) => { e.preventDefault(); dialog.close(); go(href); } },
      h("span.line", null, h("bdi.title", null, hit.title || hit.session), h("time", { datetime: hit.time, title: exactTime(hit.time) }, ago(hit.time))),
      showTurning(h("span.snippet", { dir: "auto" }, ...marked(hit.snippet, hit.marks))),
      h("span.line.small", null, h("bdi.id", null, `${hit.session}#${hit.seq}`), hit.role && h("bdi", null, hit.role), hit.kind !== "message" && h("bdi", null, hit.kind))));
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => { timer = 0; ask(0); }, pause);
  });
  only.addEventListener("change", () => ask(0));
  dialog.addEventListener("close", () => { asked?.abort(); clearTimeout(timer); dialog.remove(); });
  dialog.addEventListener("click", (e) => { if (e.target === dialog) dialog.close(); });
  document.body.append(dialog);
  dialog.showModal();
  input.focus();
}

// marked returns a text with parts of it marked. The marks count bytes.
export function marked(text, marks) {
  const bytes = new TextEncoder().encode(text), decoder = new TextDecoder();
  const out = [];
  let at = 0;
  for (const { start, end } of marks ?? []) {
    if (start < at || end > bytes.length) break;
    out.push(decoder.decode(bytes.subarray(at, start)), h("mark", null, decoder.decode(bytes.subarray(start, end))));
    at = end;
  }
  out.push(decoder.decode(bytes.subarray(at)));
  return out;
}
