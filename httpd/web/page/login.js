// Logins in the address: #code=… (hansard open), #share=… (hansard share) and
// #token=…. Junk there must not log the reader out: it is tried first.

import { notice } from "./dom.js";

// cookieLogin stands for a token that only the server and the cookie have.
export const cookieLogin = "…";

const pattern = /^#(code|share|token)=([^&]*)(?:&session=([^&]*))?/;

const decoded = (text) => { try { return decodeURIComponent(text); } catch { return text; } };

// takeLogin removes it from the address bar and the history, and keeps it if the server
// accepts it, or if there is nothing to lose. It returns what is wrong with one that is
// refused, unless the reader is logged in and gets a notice instead.
export async function takeLogin(auth) {
  const match = pattern.exec(location.hash);
  if (!match) return;
  const kind = match[1], given = decoded(match[2]);
  history.replaceState(null, "", location.pathname + (match[3] ? `#/s/${encodeURIComponent(decoded(match[3]))}` : "#/"));
  if (given === auth.token) return;
  let why = "it can't be one", away = false;
  if (/^[\x21-\x7e]+$/.test(given)) {
    try {
      const response = await (kind === "code"
        ? fetch("/v1/login", { method: "POST", body: JSON.stringify({ code: given }), headers: { "Content-Type": "application/json" }, credentials: "same-origin" })
        : fetch("/v1/whoami", { headers: { Authorization: `Bearer ${given}` }, credentials: "omit", cache: "no-store" }));
      if (response.ok) return void auth.keep(kind === "code" ? cookieLogin : given, kind === "share");
      away = response.status !== 401;
      why = (await response.json()).detail ?? `the server answered ${response.status}`;
    } catch { away = true; }
  }
  const what = kind === "token" ? "The token in the link" : "The link";
  if (auth.token) notice({ message: `${what} was not accepted: ${why}.`, hint: "You are still logged in as before." });
  else if (kind !== "code" && away) auth.keep(given, kind === "share"); // the server may only be unreachable
  else return kind === "token" ? `The server did not accept the token: ${why}` : `The link was not accepted: ${why}. hansard open makes another.`;
}

// A login that arrives while the page is open restarts it.
addEventListener("hashchange", (e) => {
  if (!pattern.test(location.hash)) return;
  e.stopImmediatePropagation();
  location.reload();
});
