// `contiguity`: what designs do to contiguity, over machines of many shapes. A picture for each workload, level
// and figure, CPUs across and memory a CPU downwards.

/** A rate over a wide range: what is not zero does not look like it. */
function rate(x) {
  if (x === 0) return "0";
  return x < 100 ? x.toFixed(x < 0.1 ? 3 : 2) : decimal(x);
}

/** What can be drawn of a cell: [name, value, format, what is better, logarithmic]. Figures that no cell has are left out. */
const FRAGMENTATION_FIGURES = [
  ["Unusable-free-space index, order 9", (cell) => cell.unusable?.["9"], (x) => x.toFixed(3), "less"],
  ["Zone locks per 1,000 frames", (cell) => cell.zone_locks_per_1000, rate, "less", true],
  ["Shared writes per 1,000 frames", (cell) => cell.shared_writes_per_1000, rate, "less", true],
  ["Share of free memory that can serve order 9", (cell) => cell.order9_share, (x) => x.toFixed(3), "more"],
  ["Share of memory that idle CPUs keep", (cell) => cell.idle_share, (x) => x.toFixed(3), "less"],
  ["How full memory is at the first failure, %", (cell) => (typeof cell.order === "number" ? cell.used_percent : null), (x) => x.toFixed(2), "more"],
  ["Wholly free blocks", (cell) => (cell.workload === "two-cpu-mix" ? cell.free_blocks : null), (x) => number(Math.round(x * 10) / 10), "more"],
];

const FRAGMENTATION_WORKLOADS = {
  "kernel-build-like": "Short processes, and the memory that they leave behind.",
  aging: "Long use with chunks of many orders, types and lifetimes, at a given share of memory in use.",
  idle: "All CPUs busy, then nearly none: what idle CPUs keep.",
  fill: "Chunks of one order until the first failure.",
  "two-cpu-mix": "Two CPUs with single frames and large chunks.",
};

/** The share of memory in use, or the order, that a cell was given. */
function levelOf(cell) {
  if (typeof cell.order === "number") return `order ${cell.order}`;
  return typeof cell.used_percent === "number" ? `${cell.used_percent} % in use` : "";
}

function mib(n) {
  return bytes(n * 1024 * 1024);
}

/** Columns and rows of a machine's CPUs and memory. Memory is that of a CPU, unless the whole machine's repeats more. */
function machineAxes(cells) {
  const each = (cell) => cell.memory_mib / cell.cpus;
  const whole = unique(cells.map((cell) => cell.memory_mib)).length < unique(cells.map(each)).length;
  const memory = whole ? (cell) => cell.memory_mib : each;
  const rising = (of) => unique(cells.map(of)).sort((a, b) => a - b);
  return {
    across: "CPUs", down: whole ? "memory" : "memory a CPU",
    columns: rising((cell) => cell.cpus).map((n) => ({ key: n, label: thousands(n), said: plural(n, "CPU") })),
    rows: rising(memory).map((n) => ({ key: n, label: mib(n), said: `${mib(n)}${whole ? "" : " a CPU"}` })),
    place: (cell) => `${cell.cpus} ${memory(cell)}`,
    below: (cell) => (whole ? "" : mib(cell.memory_mib)),
  };
}

/** Columns of the levels that one machine was used at. */
function levelAxes(cells) {
  const machine = `${plural(cells[0].cpus, "CPU")}, ${mib(cells[0].memory_mib)}`;
  return {
    across: "in use", down: "machine",
    columns: unique(cells.map(levelOf)).map((level) => ({ key: level, label: level.replace(" in use", ""), said: level })),
    rows: [{ key: "machine", label: machine, said: machine }],
    place: (cell) => `${levelOf(cell)} machine`,
    below: () => "",
  };
}

/** The pictures of cells that differ by engine, seed and what is on the axes. */
function fragmentationGrids(cells, name, axes) {
  const engines = unique(cells.map((cell) => cell.engine));
  const seeds = unique(cells.map((cell) => cell.seed)).length;
  return FRAGMENTATION_FIGURES.map(([what, of, format, better, log]) => {
    const found = cells.filter((cell) => typeof of(cell) === "number");
    if (found.length === 0) return null;
    const valuesOf = (engine) => {
      const own = found.filter((cell) => cell.engine === engine);
      return new Map(unique(own.map(axes.place)).map((place) => {
        const here = own.filter((cell) => axes.place(cell) === place);
        return [place, { value: here.reduce((sum, cell) => sum + of(cell), 0) / here.length, below: axes.below(here[0]) }];
      }));
    };
    return heatGrid({
      title: `${name}: ${what[0].toLowerCase()}${what.slice(1)}`,
      note: `${better === "less" ? "Less" : "More"} is better; the stronger the colour, the worse${log ? ", on a logarithmic scale" : ""}.${seeds > 1 ? ` The mean of ${seeds} seeds.` : ""}`,
      ...axes, engines: engines.map((engine) => ({ name: engine, values: valuesOf(engine) })), format, better, log,
    });
  });
}

function fragmentationWorkload(cells, workload) {
  const own = cells.filter((cell) => cell.workload === workload);
  const levels = unique(own.map(levelOf));
  const machines = unique(own.map((cell) => `${cell.cpus} ${cell.memory_mib}`));
  const grids = machines.length === 1 && levels.length > 1
    ? fragmentationGrids(own, workload, levelAxes(own))
    : levels.map((level) => {
      const at = own.filter((cell) => levelOf(cell) === level);
      return fragmentationGrids(at, level ? `${workload}, ${level}` : workload, machineAxes(at));
    });
  const what = FRAGMENTATION_WORKLOADS[workload];
  return [el("h3", { id: what && `grid-${workload}` }, workload), what && el("p", { class: "quiet" }, what), grids];
}

/** Every cell with everything that the JSON has of it. */
function fragmentationTable(cells) {
  const maps = cells.map((cell) => new Map(leaves(cell)));
  const first = ["workload", "cpus", "memory_mib", "used_percent", "order", "engine", "seed"];
  const found = unique(maps.flatMap((map) => [...map.keys()])).filter((name) => maps.some((map) => map.get(name) !== null && map.get(name) !== undefined));
  const columns = [...first.filter((name) => found.includes(name)), ...found.filter((name) => !first.includes(name))];
  const shown = (value) => (typeof value === "number" ? figure(value, Number.isInteger(value) ? thousands(value) : decimal(value)) : figure(value));
  return table("Every cell of the grid", columns.map((name) => words(name.replace(".", ", order "))), maps.map((map) => ({
    head: map.get(columns[0]), cells: columns.slice(1).map((name) => shown(map.get(name))),
  })));
}

function fragmentationDocument(document) {
  const cells = document.cells.filter((cell) => typeof cell.cpus === "number" && typeof cell.memory_mib === "number");
  return [
    el("h2", {}, "Fragmentation"),
    document.verdict && el("p", { class: "verdict" }, document.verdict),
    el("p", { class: "quiet" }, "What designs do to contiguity, by CPUs and memory. Counts: the same arguments give the same figures on every machine."),
    cells.length === 0 && el("p", { class: "note" }, "No cell was finished in this run."),
    unique(cells.map((cell) => cell.workload)).map((workload) => fragmentationWorkload(cells, workload)),
    cells.length > 0 && details(`All ${plural(cells.length, "cell")}`, () => fragmentationTable(cells)),
  ];
}
