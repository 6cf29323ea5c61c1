// Colours for code, as spans around text nodes: comments, strings, numbers, keywords
// and names, in one pass over the text; diffs by their lines. Unknown or very long
// text stays plain, which is just as readable. All look-ahead is bounded, so that no
// text can make it slow.

import { h } from "./dom.js";

const lengthMax = 60_000;
const spansMax = 3_000; // spans are costly; past this many the rest is plain

const words = (text) => new Set(text.split(" "));

// families are groups of languages that can be coloured alike.
const families = {
  c: {
    names: ["c", "h", "cpp", "cc", "hpp", "c++", "cs", "csharp", "java", "kotlin", "kt", "scala", "swift", "dart", "go", "golang", "rs", "rust", "js", "javascript", "jsx", "mjs", "cjs", "ts", "typescript", "tsx", "php", "proto", "zig"],
    token: /(\/\/[^\n]*|\/\*[^]*?(?:\*\/|$))|("(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.){0,200}'|`[^`]*`?)|(\b\d[\w.]*)|([A-Za-z_$][\w$]*)/g,
    keywords: words("abstract any as async await auto bool boolean break byte case catch chan char class const continue crate debugger def default defer delete do double dyn else enum error export extends extern fallthrough false final finally float fn for from func function go goto if impl implements import in instanceof int int64 interface internal is let long loop map match mod move mut namespace new nil null number object of operator out override package private protected pub public range readonly ref return select self short sizeof static str string struct super switch template this throw throws trait true try type typedef typeof uint uint64 undefined union unsafe use using var virtual void volatile where while with yield"),
  },
  hash: {
    names: ["python", "py", "python3", "ruby", "rb", "perl", "pl", "r", "elixir", "ex", "nim", "julia", "jl"],
    token: /(#[^\n]*)|("""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|[rbfuRBFU]{0,2}"(?:[^"\\\n]|\\.)*"?|[rbfuRBFU]{0,2}'(?:[^'\\\n]|\\.)*'?)|(\b\d[\w.]*)|([A-Za-z_][\w]*[?!]?)/g,
    keywords: words("False None True and as assert async await begin break case class continue def del do elif else elsif end ensure except false finally for from global if import in is lambda let match module my next nil nonlocal not or pass print raise require rescue return self sub super then true try undef unless until use when while with yield"),
  },
  shell: {
    names: ["sh", "bash", "zsh", "shell", "console", "fish", "dockerfile", "docker", "makefile", "make", "powershell", "ps1"],
    token: /((?:^|(?<=\s))#[^\n]*)|("(?:[^"\\]|\\.)*"?|'[^']*'?)|(\$\{[^}\n]{0,200}\}|\$[\w@#?*!$-]+|(?<=\s)--?[A-Za-z][\w-]*)|([A-Za-z_][\w.-]*)/gm,
    keywords: words("case do done elif else esac exit export fi for function if in local return set source then unset until while FROM RUN COPY ADD CMD ENTRYPOINT ENV WORKDIR EXPOSE ARG cd cat cp curl echo git go grep ls make mkdir mv npm python rm sed sudo tail"),
  },
  sql: {
    names: ["sql", "postgres", "postgresql", "mysql", "sqlite"],
    token: /(--[^\n]*|\/\*[^]*?(?:\*\/|$))|('(?:[^']|'')*'?|"[^"]*"?)|(\b\d[\d.]*|\$\d+)|([A-Za-z_]\w*)/g,
    keywords: words("add all alter and any as asc begin between by case check column commit constraint create cross database default delete desc distinct drop else end exists explain false foreign from full grant group having if in index inner insert into is join key left like limit not null offset on or order outer primary references returning right rollback select set table then to true union unique update using values view when where with"),
    fold: true,
  },
  data: {
    names: ["yaml", "yml", "toml", "ini", "conf", "properties", "env"],
    token: /((?:^|(?<=\s))[#;][^\n]*)|("(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?)|((?<=[:=\s-])-?\d[\d.:_-]*\b)|(^[ \t]{0,40}(?:- )?[\w."/-]{1,100}(?=\s{0,20}[:=])|^\[[^\]\n]*\]|\b(?:true|false|null|yes|no)\b)/gm,
    keywords: null,
  },
  markup: {
    names: ["html", "xml", "svg", "vue", "svelte", "xhtml"],
    token: /(<!--[^]*?(?:-->|$))|("[^"\n<]*"|'[^'\n<]*')|(&[#\w]+;)|(<\/?[A-Za-z][\w:-]*|\/?>)/g,
    keywords: null,
  },
  css: {
    names: ["css", "scss", "less"],
    token: /(\/\*[^]*?(?:\*\/|$)|\/\/[^\n]*)|("[^"\n]*"|'[^'\n]*')|(#[0-9a-fA-F]{3,8}\b|-?\b\d[\w.%]*)|([a-z-]{1,60}(?=\s{0,20}:)|@[\w-]+)/g,
    keywords: null,
  },
};

const byName = new Map(Object.values(families).flatMap((f) => f.names.map((name) => [name, f])));

// languageOf returns the language of a file, by its name.
export function languageOf(path) {
  const name = String(path).split(/[\\/]/).at(-1).toLowerCase();
  if (name === "dockerfile" || name === "makefile") return name;
  const dot = name.lastIndexOf(".");
  const ending = dot > 0 ? name.slice(dot + 1) : "";
  return byName.has(ending) || ["json", "jsonl", "diff", "patch", "md"].includes(ending) ? ending : "";
}

// coloured returns the nodes of a text in a language.
export function coloured(text, language) {
  const name = (language ?? "").toLowerCase();
  if (text.length > lengthMax) return [text];
  if (name === "json" || name === "jsonl" || name === "json5" || name === "jsonc") return json(text);
  if (name === "diff" || name === "patch" || (name === "" && looksLikeDiff(text))) return diff(text);
  const family = byName.get(name);
  return family ? tokens(text, family) : [text];
}

const jsonTokens = /("(?:[^"\\]|\\.)*")(\s*:)?|-?\d[\d.eE+-]*|\b(?:true|false|null)\b/g;

function json(text) {
  const out = new Nodes(text);
  for (const m of text.matchAll(jsonTokens)) {
    if (!out.put(m.index, m[2] ? "code-name" : m[1] ? "code-string" : "code-number", m[1] ?? m[0])) break;
  }
  return out.rest();
}

function tokens(text, family) {
  const out = new Nodes(text);
  for (const m of text.matchAll(family.token)) {
    const kind = m[1] ? "code-comment" : m[2] ? "code-string" : m[3] ? "code-number"
      : family.keywords === null || family.keywords.has(family.fold ? m[4].toLowerCase() : m[4]) ? "code-word"
      : text[m.index + m[0].length] === "(" ? "code-name" : null;
    if (kind && !out.put(m.index, kind, m[0])) break;
  }
  return out.rest();
}

// Nodes cuts a text into plain and coloured pieces.
class Nodes {
  #text; #nodes = []; #copied = 0; #spans = 0;
  constructor(text) { this.#text = text; }

  put(index, kind, piece) {
    if (++this.#spans > spansMax) return false;
    if (index > this.#copied) this.#nodes.push(this.#text.slice(this.#copied, index));
    this.#nodes.push(h(`span.${kind}`, null, piece));
    this.#copied = index + piece.length;
    return true;
  }

  rest() {
    if (this.#copied < this.#text.length) this.#nodes.push(this.#text.slice(this.#copied));
    return this.#nodes;
  }
}

// looksLikeDiff recognises a diff, or a patch, by how its lines begin.
export function looksLikeDiff(text) {
  const head = text.slice(0, 4000);
  return /^(diff --git |--- \S.*\n\+\+\+ \S|@@ -\d|\*\*\* Begin Patch|Index: \S.*\n=+\n)/m.test(head);
}

// diff colours the lines of a diff, each as a block.
function diff(text) {
  const lines = text.split("\n");
  if (lines.length > spansMax) return [text];
  return lines.map((line, i) => {
    const kind = /^(diff |index |--- |\+\+\+ |\*\*\* |Index: |===|similarity |rename |new file|deleted file)/.test(line) ? "diff-head"
      : line.startsWith("@@") ? "diff-hunk" : line.startsWith("+") ? "diff-add" : line.startsWith("-") ? "diff-del" : null;
    const full = i + 1 < lines.length ? line + "\n" : line;
    return kind ? h(`span.${kind}`, null, full) : full;
  });
}
