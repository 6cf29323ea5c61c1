// What to show when there is nothing else to show: no token, an empty store, no
// session chosen, the help.

import { auth, isToken } from "./api.js";
import { copyButton, h, icon } from "./dom.js";

const here = location.origin;

function command(text, shown = text) {
  return h("div.command", null, h("pre", { tabindex: "0" }, h("code", null, shown)), copyButton(() => text, "Copy the command"));
}

// tokenPage asks for the token. The error, if any, is the reason.
export function tokenPage(error, done) {
  const input = h("input", { type: "password", placeholder: "Token", "aria-label": "Token", autocomplete: "current-password", spellcheck: "false", required: true });
  const page = h("main.alone", null, h("div.card", null,
    h("h1.wordmark", null, h("img", { src: "icon.svg", alt: "" }), "Hansard"),
    error && h("p.banner.bad", { role: "alert" }, icon("warning"), h("span", null, error)),
    h("p", null, "This server gives nothing away without a token."),
    h("form.token", { onsubmit: (e) => {
      e.preventDefault();
      const given = input.value.trim().replace(/^.*#token=/, "");
      if (!isToken(given)) return page.replaceWith(tokenPage("A token has only plain letters, digits and signs, without spaces.", done));
      auth.token = given;
      done();
    } },
      input, h("button.primary", { type: "submit" }, "Open")),
    h("h2", null, "Where is it?"),
    h("ul", null,
      h("li", null, h("code", null, "hansard serve"), " printed it at its first start, as an address to open: open that, or paste it here."),
      h("li", null, "Programs on this machine have it too: ", h("code", null, "echo $HANSARD_TOKEN"), "."),
      h("li", null, "It is shown only once. Where the store is, this makes another:", command("hansard token add browser --rights read,append")),
      h("li", null, "Or ask whoever runs the server."))));
  requestAnimationFrame(() => input.focus());
  return page;
}

// emptyPage says what to do next in a store without sessions.
export function emptyPage(rights) {
  const token = auth.token ?? "";
  if (!rights.has("append")) return h("div.welcome", null, h("h2", null, "An empty store"), h("p", null, "Nobody has said anything yet. As soon as somebody does, it appears here."));
  return h("div.welcome", null,
    h("h2", null, "An empty store"),
    h("p", null, "Nobody has said anything yet. As soon as somebody does, it appears here."),
    h("ol.steps", null,
      h("li", null, h("h3", null, "Let the programs in"),
        h("p", null, "In a terminal, once:"),
        command(`export HANSARD_STORE=${here} HANSARD_TOKEN=${token}`, `export HANSARD_STORE=${here} HANSARD_TOKEN=${"•".repeat(12)}`)),
      h("li", null, h("h3", null, "See agents at work"),
        h("p", null, "Several of them, talking until you press Ctrl-C:"),
        command("hansard demo")),
      h("li", null, h("h3", null, "Write a session of your own"),
        command('hansard new first --title "A first session"\nhansard append first "What is the capital of Peru?" --role user'),
        h("p", null, "or from any language:"),
        command(`curl ${here}/v1/sessions/first/events \\\n  -H "Authorization: Bearer $HANSARD_TOKEN" \\\n  -H "Content-Type: application/json" \\\n  -d '{"create":true,"events":[{"role":"user","data":"What is the capital of Peru?"}]}'`))));
}

// chooseHint is shown beside the list while no session is open.
export function chooseHint() {
  return h("div.welcome.choose", null, h("img", { src: "icon.svg", alt: "", width: "56", height: "56" }), h("p", null, "Choose a session."), h("p.quiet", null, h("kbd", null, "j"), " next  ", h("kbd", null, "/"), " search  ", h("kbd", null, "?"), " all keys"));
}

const keys = [
  [["j", "k"], "next and previous event; session, while none is open"],
  [["J", "K"], "next and previous session"],
  [["g", "G"], "the beginning, the end"],
  [["o"], "open or fold the marked event; also Enter"],
  [["y"], "copy a link to it"],
  [["f"], "find in the session"],
  [["s"], "search the events of all sessions"],
  [[":"], "go to an event by its number"],
  [["m"], "what else can be done with the session"],
  [["Ctrl", "P"], "print all of it"],
  [["e"], "title and labels"],
  [["/"], "search sessions"],
  [["c"], "new session"],
  [["n"], "write a message"],
  [["Ctrl", "Enter"], "send it"],
  [["Esc"], "leave a field, close this, back to the list"],
  [["t"], "dark or light"],
  [["?"], "this help"],
];

// helpDialog shows the keys.
export function helpDialog() {
  const dialog = h("dialog.help", { "aria-label": "Keyboard" },
    h("h2", null, "Keyboard"),
    h("dl", null, keys.flatMap(([names, what]) => [h("dt", null, names.map((k) => h("kbd", null, k))), h("dd", null, what)])),
    h("button.primary", { type: "button", onclick: () => dialog.close() }, "Close"));
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (e) => { if (e.target === dialog) dialog.close(); });
  document.body.append(dialog);
  dialog.showModal();
}
