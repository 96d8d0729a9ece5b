// A replay by order and by migratetype: what was allocated, what went between the zone and the CPUs' lists, what is free.

/** The types that requests and lists have, as the JSON has them in each order, and the colours that maps give them. */
const LIST_TYPES = [["unmovable", 1], ["movable", 2], ["reclaimable", 4]];

/** Chunks of each order as frames. */
function inFrames(orders) {
  return orders.map((types, order) => types.map((chunks) => chunks * 2 ** order));
}

/** What can be shown: [key, name, title, what it counts, parts of each row of an engine, its total, names of the rows]. */
const ORDER_VIEWS = [
  ["allocs", "allocations", "Allocated", "frames", (e) => inFrames(e.by_order.allocs), () => null],
  ["refills", "refills", "Refilled, from the zone to CPUs", "frames", (e) => e.by_order.refilled_frames, (e) => e.refilled_frames],
  ["drains", "drains", "Drained, from CPUs to the zone", "frames", (e) => e.by_order.drained_frames, (e) => e.drained_frames],
  ["fallbacks", "fallbacks", "Fallbacks, by the type asked for", "allocations", (e) => e.by_order.fallbacks, (e) => e.fallbacks, LIST_TYPES.map(([type]) => type)],
  ["free", "free at the end", "Free at the end, as the largest chunks that free neighbours make", "chunks", (e) => e.by_order.free_chunks_end.map((chunks) => [chunks]), () => null],
];

const sumOf = (parts) => parts.reduce((sum, part) => sum + part, 0);

/** A table with a stacked bar a row: {name, parts}, the parts coloured by type, one alone in the colour of what has none. */
function stacks(title, note, rows, most, more) {
  const segment = (parts, i) => {
    const [type, colour] = parts.length > 1 ? LIST_TYPES[i] : ["", 0];
    return parts[i] > 0 && el("span", { class: "segment", title: `${type} ${thousands(parts[i])}`.trim(), style: `flex: 0 1 ${((parts[i] / most) * 100).toFixed(3)}%; background: ${seriesColour(colour)}` });
  };
  return table([el("strong", {}, title), el("span", { class: "quiet" }, " ", note)], ["", note], rows.map(({ name, parts }) => ({
    head: el("span", { class: "order" }, el("span", {}, name), el("span", { class: "track stack", "aria-hidden": "true" }, parts.map((_, i) => segment(parts, i)))),
    cells: [{ class: "number", content: thousands(sumOf(parts)) }],
  })), { class: `bars stacks ${more}` });
}

/** One view of all engines: what is alike in all of them is drawn once. */
function orderPanels([, , , unit, of, total, names], engines) {
  const found = engines.map((engine) => ({ engine, rows: of(engine) }));
  const known = found.filter(({ rows }) => rows);
  const used = (row) => known.some(({ rows }) => sumOf(rows[row]) > 0);
  const count = known[0]?.rows.length || 0;
  // Orders between two that are used are shown as well: that they are empty says something.
  let [first, last] = [0, count - 1];
  while (!names && first < last && !used(first)) first += 1;
  while (!names && last > first && !used(last)) last -= 1;
  const most = Math.max(...known.flatMap(({ rows }) => rows.map(sumOf)), 1);
  const draw = (title, rows) => stacks(title, unit, rows.slice(first, last + 1).map((parts, i) => ({ name: names ? names[i] : `order ${first + i}`, parts })), most, names ? "types" : "");
  const alike = known.length > 1 && known.every(({ rows }) => String(rows) === String(known[0].rows));
  const without = found.filter(({ rows }) => !rows);
  return [
    alike
      ? draw(without.length > 0 ? known.map(({ engine }) => engine.engine).join(", ") : "Every engine", known[0].rows)
      : known.map(({ engine, rows }) => draw(engine.engine, rows)),
    without.map(({ engine }) => el("p", { class: "quiet" }, el("b", {}, engine.engine), ` does not count this by order: ${thousands(total(engine))} ${unit} in all.`,
      engine.engine.startsWith("freehold") ? " Its CPUs take words of 64 frames and whole pageblocks, not chunks of an order." : "")),
  ];
}

/** Every figure of it, as the JSON has them: allocations and what is free in chunks. */
function ordersTable(engines) {
  const get = (object, path) => path.reduce((at, key) => at?.[key], object);
  const orders = [...Array(11).keys()];
  const lists = (key, what) => [what, orders.flatMap((order) => LIST_TYPES.map(([type], i) => [`order ${order}, ${type}`, [key, order, i]]))];
  const groups = [
    lists("allocs", "Chunks allocated"), lists("refilled_frames", "Frames refilled"), lists("drained_frames", "Frames drained"),
    ["Fallbacks", LIST_TYPES.flatMap(([asked], i) => LIST_TYPES.map(([taken], j) => [`${asked} from ${taken}`, ["fallbacks", i, j]]))],
    ["Chunks free at the end", orders.map((order) => [`order ${order}`, ["free_chunks_end", order]])],
  ];
  const lines = groups.flatMap(([group, rows]) => {
    const some = rows.map(([head, path]) => ({ head, values: engines.map((engine) => get(engine.by_order, path)) }))
      .filter(({ values }) => values.some((value) => value > 0));
    return some.length === 0 ? [] : [{ group }, ...some.map(({ head, values }) => ({ head, cells: values.map((value) => figure(value)) }))];
  });
  return table("By order and migratetype; what is 0 everywhere is left out", ["", ...engines.map((engine) => engine.engine)], lines, { class: "comparison" });
}

/** The section, where the JSON has the counts. */
function replayOrders(document) {
  const engines = document.engines.filter((engine) => engine.by_order);
  if (engines.length === 0) return null;
  const box = el("div", {});
  const offered = ORDER_VIEWS.filter(([, , , , of]) => engines.some((engine) => of(engine)?.flat().some((count) => count > 0)));
  if (offered.length === 0) return null;
  const draw = (key) => {
    const view = offered.find(([other]) => other === key);
    box.replaceChildren(
      el("p", {}, el("strong", {}, view[2])),
      key === "free" ? "" : el("div", { class: "legend" }, key === "fallbacks" && el("span", { class: "quiet" }, "taken from"), LIST_TYPES.map(([type, colour]) => el("span", { class: "pair" }, el("span", { class: "swatch", "aria-hidden": "true", style: `background: ${seriesColour(colour)}` }), type))),
      el("div", { class: "panels narrow" }, orderPanels(view, engines)));
  };
  const now = [state.get("by-order"), "refills"].find((wanted) => offered.some(([key]) => key === wanted)) || offered[0][0];
  draw(now);
  return [
    el("h3", { id: "by-order" }, "By order and migratetype"),
    el("div", { class: "controls" }, choice("Show", offered, now, (key) => {
      remember("by-order", key);
      draw(key);
    })),
    box,
    details("As a table", () => ordersTable(engines)),
  ];
}
