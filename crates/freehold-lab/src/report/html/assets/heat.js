// A grid of figures as a picture, one for each engine beside the others: the worse a figure, the stronger its colour, on
// one scale for all engines. With the pointer or, focused, with the arrow keys a mark moves over all of them at once;
// what each engine has there is written below, where a screen reader hears it.

/** How bad a value is among others, 0 to 1. On a logarithmic scale zero is a tenth of the least above it. */
function badnessScale(values, better, log) {
  const found = values.filter((value) => Number.isFinite(value) && !(log && value <= 0));
  let least = Math.min(...found);
  const most = Math.max(...found);
  if (log && values.some((value) => value === 0)) least /= 10;
  if (!(most > least)) return () => 0;
  const on = log ? (value) => Math.log(Math.max(value, least) / least) / Math.log(most / least) : (value) => (value - least) / (most - least);
  return (value) => (better === "more" ? 1 - on(value) : on(value));
}

/**
 * The picture.
 *   title, note      what it shows; a sentence more
 *   columns, rows    {key, label, said}: `label` stands at the edge, `said` is what it is in a sentence
 *   across, down     what columns and rows are
 *   engines          {name, values}: values by "column row", {value, below}; `below` is written under the value
 *   format, better, log
 */
function heatGrid({ title, note, columns, rows, across, down, engines, format, better, log }) {
  const badness = badnessScale(engines.flatMap((engine) => [...engine.values.values()].map((cell) => cell.value)), better, log);
  const readout = el("output", { class: "readout", "aria-live": "polite" });
  const drawn = engines.map((engine) => ({ engine, box: el("div", { class: "heat-box" }), geometry: null, marks: null }));
  let cursor = null;

  const cellAt = (engine, c, r) => engine.values.get(`${columns[c].key} ${rows[r].key}`);

  function describe() {
    return engines.map((engine) => {
      const values = [...engine.values.values()].map((cell) => cell.value);
      return values.length > 0 ? `${engine.name}: from ${format(Math.min(...values))} to ${format(Math.max(...values))}.` : `${engine.name}: nothing.`;
    }).join(" ");
  }

  function draw(one, room) {
    const left = 12 + 7 * Math.max(...rows.map((row) => row.label.length), 2);
    const wide = Math.max(Math.min(Math.floor((room - left) / columns.length), 78), 12);
    const tall = wide >= 54 ? 42 : 30;
    const bottom = rows.length * tall;
    const size = { width: left + wide * columns.length, height: bottom + 40 };
    one.geometry = { left, wide, tall };
    const picture = svg("svg", { ...size, viewBox: `0 0 ${size.width} ${size.height}`, role: "img", "aria-label": `${title}, ${one.engine.name}` });
    const fits = (text, pixels) => text.length * pixels <= wide - 4;
    rows.forEach((row, r) => {
      picture.append(svg("text", { class: "tick", x: left - 7, y: r * tall + tall / 2 + 4, "text-anchor": "end" }, row.label));
      columns.forEach((column, c) => {
        const cell = cellAt(one.engine, c, r);
        const at = { x: left + c * wide, y: r * tall, width: wide - 2, height: tall - 2 };
        if (!cell) {
          picture.append(svg("rect", { class: "heat-none", ...at }));
          return;
        }
        const [middle, text] = [at.x + wide / 2 - 1, format(cell.value)];
        const second = tall > 40 && cell.below && fits(cell.below, 6);
        picture.append(
          svg("rect", { class: "heat-ground", ...at }),
          svg("rect", { class: "heat-cell", ...at, "fill-opacity": badness(cell.value).toFixed(4), "data-place": `${column.key} ${row.key}` }));
        if (fits(text, 7)) picture.append(svg("text", { class: "heat-value", x: middle, y: at.y + tall / 2 + (second ? -3 : 4), "text-anchor": "middle" }, text));
        if (second) picture.append(svg("text", { class: "heat-below", x: middle, y: at.y + tall / 2 + 12, "text-anchor": "middle" }, cell.below));
      });
    });
    let taken = -Infinity;
    columns.forEach((column, c) => {
      const [middle, half] = [left + c * wide + wide / 2 - 1, column.label.length * 3.5];
      if (middle - half < taken) return;
      taken = middle + half + 4;
      picture.append(svg("text", { class: "tick", x: middle, y: bottom + 14, "text-anchor": "middle" }, column.label));
    });
    picture.append(svg("text", { class: "axis-label", x: left + (wide * columns.length) / 2, y: bottom + 33, "text-anchor": "middle" }, across));
    one.mark = svg("rect", { class: "heat-mark", visibility: "hidden" });
    picture.append(one.mark);
    one.box.replaceChildren(picture);
    showCursor(one);
  }

  function showCursor(one) {
    if (cursor === null || !one.geometry) return;
    const { left, wide, tall } = one.geometry;
    const place = { x: left + cursor.c * wide, y: cursor.r * tall, width: wide - 2, height: tall - 2, visibility: "visible" };
    Object.entries(place).forEach(([name, value]) => one.mark.setAttribute(name, value));
  }

  function move(c, r) {
    cursor = { c: Math.min(Math.max(c, 0), columns.length - 1), r: Math.min(Math.max(r, 0), rows.length - 1) };
    drawn.forEach(showCursor);
    const said = engines.map((engine) => {
      const cell = cellAt(engine, cursor.c, cursor.r);
      return el("span", { class: "pair" }, `${engine.name} `, el("b", {}, cell ? format(cell.value) : "not run"));
    });
    readout.replaceChildren(el("span", { class: "pair" }, el("b", {}, `${columns[cursor.c].said}, ${rows[cursor.r].said}`)), ...said);
  }

  const heats = el("div", { class: "heats", tabindex: 0, role: "group", "aria-roledescription": "grid", "aria-label": `${title}. ${describe()} Arrow keys move from cell to cell.` },
    drawn.map((one) => el("figure", {}, el("figcaption", {}, one.engine.name, el("span", { class: "quiet" }, ` ${down} downwards`)), one.box)));
  heats.addEventListener("keydown", (event) => {
    const { c, r } = cursor ?? { c: -1, r: 0 };
    const to = {
      ArrowRight: [c + 1, r], ArrowLeft: [c - 1, r], ArrowDown: [Math.max(c, 0), cursor ? r + 1 : 0], ArrowUp: [Math.max(c, 0), r - 1],
      Home: [0, 0], End: [columns.length - 1, rows.length - 1],
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    move(...to);
  });
  drawn.forEach((one) => {
    const point = (event) => {
      if (!one.geometry) return;
      const rectangle = one.box.getBoundingClientRect();
      const c = Math.floor((event.clientX - rectangle.left - one.geometry.left) / one.geometry.wide);
      const r = Math.floor((event.clientY - rectangle.top) / one.geometry.tall);
      if (c >= 0 && c < columns.length && r >= 0 && r < rows.length) move(c, r);
    };
    one.box.addEventListener("pointermove", point);
    one.box.addEventListener("pointerdown", point);
    whenSized(one.box, (width) => draw(one, width));
  });
  return el("figure", { class: "chart heat" },
    el("figcaption", {}, el("strong", {}, title), note && el("span", { class: "quiet" }, ` ${note}`)),
    heats, readout,
    details("As a table", () => heatTable({ title, columns, rows, across, down, engines, format })));
}

/** A picture's figures as a table, for readers who do not see the picture. */
function heatTable({ title, columns, rows, across, down, engines, format }) {
  const lines = columns.flatMap((column) => rows.map((row) => [column, row]));
  const valueOf = (engine, [column, row]) => engine.values.get(`${column.key} ${row.key}`);
  return table(title, [across, down, ...engines.map((engine) => engine.name)], lines
    .filter((line) => engines.some((engine) => valueOf(engine, line)))
    .map((line) => ({
      head: line[0].label,
      cells: [line[1].label, ...engines.map((engine) => {
        const cell = valueOf(engine, line);
        return cell ? figure(cell.value, format(cell.value)) : "–";
      })],
    })));
}
