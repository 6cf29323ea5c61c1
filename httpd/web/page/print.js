// Printing prints the whole transcript, not only the part on the screen: all events
// are drawn for the printer, and removed afterwards.

import { api } from "./api.js";
import { h, notice, toast } from "./dom.js";
import { eventRow, place, answers } from "./event.js";
import { exactTime, number } from "./format.js";
import { Pairs } from "./pairs.js";

const eventsMax = 5000; // printers and browsers have their limits
const bytesMax = 64_000_000;
const pageEvents = 500;

// printSession draws a session and asks the browser to print it.
export async function printSession(info, context) {
  const working = toast("Preparing to print…");
  try {
    const { events, left } = await load(info);
    const sheet = draw(info, events, left, context);
    document.body.append(sheet);
    document.documentElement.classList.add("printing");
    // Pictures have to be loaded before the browser prints.
    await Promise.allSettled([...sheet.querySelectorAll("img")].map((i) => { i.loading = "eager"; return i.decode(); }));
    working.remove();
    window.print();
    document.documentElement.classList.remove("printing");
    sheet.remove();
  } catch (error) {
    working.remove();
    notice(error);
  }
}

// load gets the events uncut, the last ones if there are too many: on paper, nobody can
// unfold the rest of a text.
async function load(info) {
  const left = Math.max(0, info.last_seq - eventsMax);
  const events = [];
  for (let after = left, bytes = 0; ;) {
    const page = await (bytes < bytesMax ? api.wholeEvents : api.events)(info.id, after, pageEvents);
    bytes += page.bytes_received;
    events.push(...page.events);
    if (!page.more || !page.events.length) return { events, left };
    after = page.events.at(-1).seq;
  }
}

function draw(info, events, left, context) {
  const own = { ...context, pairs: new Pairs(), print: true };
  const rows = events.map((event) => eventRow(event, own));
  rows.forEach((row, i) => {
    let spoke = i - 1;
    while (spoke > 0 && i - spoke < 20 && answers(events[spoke])) spoke--;
    place(row, events[i], events[i - 1], events[spoke]);
  });
  return h("div.sheet", null,
    h("header", null, h("h1", null, info.title || info.id), h("p", null, `${info.id} · ${number(info.last_seq)} events · ${exactTime(info.updated)}`),
      left > 0 && h("p", null, `The last ${number(events.length)} events; the ${number(left)} before them are not printed. hansard show ${info.id} prints all.`)),
    rows);
}
