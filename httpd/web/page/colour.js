// Colours for JSON: names, strings and the rest, as spans around text nodes.

import { h } from "./dom.js";

const lengthMax = 4000; // spans cost; a long document is as readable without
const tokens = /("(?:[^"\\]|\\.)*")(\s*:)?|-?\d[\d.eE+-]*|\b(?:true|false|null)\b/g;

// coloured gives the nodes of a JSON text.
export function coloured(text) {
  if (text.length > lengthMax) return [text];
  const nodes = [];
  let copied = 0;
  for (const m of text.matchAll(tokens)) {
    nodes.push(text.slice(copied, m.index), h(m[2] ? "span.json-name" : m[1] ? "span.json-string" : "span.json-value", null, m[1] ?? m[0]));
    copied = m.index + (m[1] ?? m[0]).length;
  }
  nodes.push(text.slice(copied));
  return nodes;
}
