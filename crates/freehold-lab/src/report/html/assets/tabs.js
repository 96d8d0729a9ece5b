// Tabs as the ARIA authoring practices have them: one tab in the focus order, arrow keys, Home and End between them.

/** Tabs of {id, label, content()}; content is made when it is first shown. */
function tabs(label, items, selected, chosen) {
  const list = el("div", { role: "tablist", "aria-label": label, class: "tabs" });
  const panels = items.map((item) => el("section", {
    role: "tabpanel", id: `panel-${item.id}`, "aria-labelledby": `tab-${item.id}`, class: "panel", hidden: true,
  }));
  const made = new Set();
  const buttons = items.map((item, index) => el("button", {
    type: "button", role: "tab", id: `tab-${item.id}`, "aria-controls": `panel-${item.id}`,
    on: { click: () => show(index, true) },
  }, item.label));

  function show(index, tell) {
    buttons.forEach((button, i) => {
      button.setAttribute("aria-selected", String(i === index));
      button.tabIndex = i === index ? 0 : -1;
      panels[i].hidden = i !== index;
    });
    if (!made.has(index)) {
      made.add(index);
      panels[index].append(items[index].content());
    }
    buttons[index].scrollIntoView?.({ block: "nearest", inline: "nearest" });
    if (tell) chosen(items[index].id);
  }

  list.addEventListener("keydown", (event) => {
    const now = buttons.indexOf(document.activeElement);
    const last = buttons.length - 1;
    const to = { ArrowRight: now === last ? 0 : now + 1, ArrowLeft: now === 0 ? last : now - 1, Home: 0, End: last }[event.key];
    if (now < 0 || to === undefined) return;
    event.preventDefault();
    show(to, true);
    buttons[to].focus();
  });

  list.append(...buttons);
  show(Math.max(items.findIndex((item) => item.id === selected), 0), false);
  // For paper everything is wanted.
  addEventListener("beforeprint", () => items.forEach((item, index) => {
    if (!made.has(index)) {
      made.add(index);
      panels[index].append(item.content());
    }
  }));
  return [list, ...panels];
}
