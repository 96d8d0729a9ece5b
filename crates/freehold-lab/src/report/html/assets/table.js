// Tables: a caption, headings with a scope, a frame of their own to scroll in where they are wider than the screen.

/** A number in a table: what people read, and beside it, for programs, exactly what the JSON said. */
function figure(value, text) {
  if (typeof value !== "number") return value === null || value === undefined ? "–" : String(value);
  return el("data", { value: String(value) }, text === undefined ? number(value) : text);
}

/**
 * A table. `columns` are headings; `rows` are {head, cells} or {group}, each cell a node, a text or
 * {content, class}.
 */
function table(caption, columns, rows, attributes) {
  const id = freshId("table");
  const cell = (content) => {
    const isPlain = content === null || content === undefined || typeof content !== "object" || content instanceof Node || Array.isArray(content);
    return isPlain ? el("td", {}, content) : el("td", { class: content.class, title: content.title }, content.content);
  };
  const body = rows.map((row) => row.group !== undefined
    ? el("tr", { class: "group" }, el("th", { scope: "colgroup", colspan: columns.length }, el("span", {}, row.group)))
    : el("tr", {}, el("th", { scope: "row" }, row.head), row.cells.map(cell)));
  return el("div", { class: "scroll", role: "region", tabindex: 0, "aria-labelledby": id },
    el("table", { ...attributes, style: `--columns: ${Math.max(columns.length - 1, 1)}` },
      el("caption", { id }, el("span", {}, caption)),
      el("thead", {}, el("tr", {}, columns.map((column, i) =>
        el(i === 0 && !column ? "td" : "th", i === 0 && !column ? {} : { scope: "col" }, column)))),
      el("tbody", {}, body)));
}

/** Something long that is not needed at first sight; made when it is opened. `more` are attributes: an id, open. */
function details(summary, content, more) {
  const box = el("details", more, el("summary", {}, summary));
  const make = () => { if (box.children.length === 1) box.append(...[content()].flat(Infinity).filter(Boolean)); };
  box.addEventListener("toggle", () => { if (box.open) make(); });
  if (more?.open) make();
  return box;
}

/** Every number in an object and the objects in it, by path; lists of numbers are left to the charts. */
function leaves(object, prefix = "") {
  return Object.entries(object || {}).flatMap(([name, value]) => {
    const path = prefix ? `${prefix}.${name}` : name;
    if (value !== null && typeof value === "object" && !Array.isArray(value)) return leaves(value, path);
    if (Array.isArray(value)) {
      if (value.length > 12 || value.some((part) => part !== null && typeof part === "object")) return [];
      return value.map((part, i) => [`${path}[${i}]`, part]);
    }
    return [[path, value]];
  });
}

/** Many objects of numbers beside each other: a row for each field, a column for each object. */
function fieldsTable(caption, names, objects) {
  const maps = objects.map((object) => new Map(leaves(object)));
  const paths = [...new Set(maps.flatMap((map) => [...map.keys()]))];
  const shown = (value) => typeof value === "number" ? figure(value, Number.isInteger(value) ? thousands(value) : String(value)) : figure(value);
  return table(caption, ["", ...names], paths.map((path) => ({
    head: el("code", {}, path), cells: maps.map((map) => shown(map.get(path))),
  })));
}
