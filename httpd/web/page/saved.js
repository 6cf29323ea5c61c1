// Searches that were saved in this browser: the queries of addresses, the newest first.

const key = "hansard.searches";
const savedMax = 20;

export function savedSearches() {
  try {
    const saved = JSON.parse(localStorage.getItem(key));
    return Array.isArray(saved) ? saved.filter((q) => typeof q === "string").slice(0, savedMax) : [];
  } catch { return []; }
}

export function isSaved(query) { return savedSearches().includes(query); }

// saveSearch keeps a query, or forgets it.
export function saveSearch(query, keep) {
  const saved = savedSearches().filter((q) => q !== query);
  if (keep) saved.unshift(query);
  try { localStorage.setItem(key, JSON.stringify(saved.slice(0, savedMax))); } catch { /* storage is switched off */ }
}

// searchName returns a query in readable form.
export function searchName(query) {
  const q = new URLSearchParams(query);
  return [q.get("q") && `“${q.get("q")}”`, ...q.getAll("label"), q.get("archived") === "only" && "archived"].filter(Boolean).join(" · ");
}
