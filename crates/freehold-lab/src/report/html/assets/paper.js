// Paper: all tabs one after the other, in light, with the groups of benchmarks open; afterwards as it was.

function preparePaper() {
  let undo = [];
  addEventListener("beforeprint", () => {
    const root = document.documentElement;
    const { theme } = root.dataset;
    const hidden = [...document.querySelectorAll("[role=tabpanel][hidden]")];
    const closed = [...document.querySelectorAll("details.benchmark:not([open])")];
    undo = [
      () => hidden.forEach((panel) => { panel.hidden = true; }),
      () => closed.forEach((group) => { group.open = false; }),
      () => { root.dataset.theme = theme; },
    ];
    root.dataset.theme = "light";
    hidden.forEach((panel) => { panel.hidden = false; });
    closed.forEach((group) => {
      group.open = true;
      // At once, and not when the browser gets to it.
      group.dispatchEvent(new Event("toggle"));
    });
    sized.forEach((look) => look());
    redrawOnTheme.forEach((draw) => draw());
  });
  addEventListener("afterprint", () => {
    undo.forEach((step) => step());
    undo = [];
    redrawOnTheme.forEach((draw) => draw());
  });
}
