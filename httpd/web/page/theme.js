// The theme that was chosen, set before anything is painted: a module would be
// too late and the page would flash.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("hansard.theme"); } catch { /* storage is switched off */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
