// What is shown, kept in the address after '#', so that a place in a report can be sent to somebody:
// #view=replay&trace=2&colour=holder&moment=30&theme=dark

const state = new Map(new URLSearchParams(location.hash.slice(1)));

/** A number from the address within bounds. */
function stateNumber(name, most, otherwise) {
  const value = Number.parseInt(state.get(name), 10);
  return Number.isFinite(value) ? Math.min(Math.max(value, 0), Math.max(most, 0)) : otherwise;
}

function remember(name, value) {
  state.set(name, String(value));
  try {
    history.replaceState(null, "", `#${new URLSearchParams([...state])}`);
  } catch {
    // Where a browser does not let a file change its address, the place cannot be sent: nothing else is lost.
  }
}

// ---- light and dark -------------------------------------------------------------------------------------------------

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const redrawOnTheme = new Set();

function applyTheme() {
  const wanted = state.get("theme");
  const dark = wanted === "dark" || (wanted !== "light" && prefersDark.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  // Canvases do not know of style sheets.
  redrawOnTheme.forEach((draw) => draw());
}

prefersDark.addEventListener("change", applyTheme);
applyTheme();

function themeChoice() {
  const options = [["auto", "as the system"], ["light", "light"], ["dark", "dark"]];
  const now = ["light", "dark"].includes(state.get("theme")) ? state.get("theme") : "auto";
  return choice("Theme", options, now, (theme) => {
    remember("theme", theme);
    applyTheme();
  });
}
