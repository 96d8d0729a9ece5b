// Simulations: curves of any figure over the number of CPUs, or whatever else was varied.
//
// A curve is an engine. The settings below are what was varied: one of them is at the foot of the chart, the others are
// chosen. Every other number is a result that can be drawn. Text is a result too (`bound` says what limits a row) and
// never makes a curve of its own: a mark is hollow where the workload itself is the limit.

const SETTINGS = ["cpus", "memory_bytes", "memory_frames", "memory", "nodes", "sockets", "seed", "depth", "batch", "high", "shard", "events", "think_ns"];

/** Settings that may stand at the foot of a chart, where they vary. */
const FEET = ["cpus", "memory_bytes", "memory_frames", "memory", "nodes", "sockets", "depth", "batch", "high"];

function fieldFormat(name) {
  if (/_bytes$|^memory$/.test(name)) return bytes;
  if (/_share$|_rate$/.test(name)) return percentOf;
  if (/_ns$/.test(name)) return duration;
  return number;
}

function simulateFields(rows) {
  const of = (test) => unique(rows.flatMap((row) => Object.keys(row).filter((name) => test(row[name]))));
  const varies = (name) => unique(rows.map((row) => row[name])).length > 1;
  const numbers = of((value) => typeof value === "number");
  return {
    feet: FEET.filter((name) => numbers.includes(name) && varies(name)),
    settings: numbers.filter((name) => SETTINGS.includes(name) && varies(name) && name !== "seed"),
    results: numbers.filter((name) => !SETTINGS.includes(name)),
  };
}

/** What limits the rows behind a point: one of them, or both where seeds differ. */
function boundOf(rows) {
  return unique(rows.map((row) => row.bound).filter((bound) => typeof bound === "string")).join(" or ");
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return (sorted[Math.floor((sorted.length - 1) / 2)] + sorted[Math.floor(sorted.length / 2)]) / 2;
}

function simulateChart(rows, fields, names, foot, result, scale) {
  const values = unique(rows.map((row) => row[foot])).filter(Number.isFinite).sort((a, b) => a - b);
  const format = fieldFormat(result);
  const footFormat = fieldFormat(foot);
  const places = engineSeries(names);
  const series = names.map((name, i) => {
    const own = rows.filter((row) => row.engine === name && Number.isFinite(row[result]));
    const points = values.map((at) => [at, own.filter((row) => row[foot] === at)])
      .filter(([, found]) => found.length > 0)
      .map(([at, found]) => {
        const results = found.map((row) => row[result]);
        return [at, median(results), Math.min(...results), Math.max(...results), boundOf(found)];
      });
    return { name, index: places[i], points, marks: true, hollow: (point) => point[4] === "think" };
  }).filter((one) => one.points.length > 0);
  const log = values.length > 2 && values[0] > 0 && values[values.length - 1] / values[0] >= 8;
  return lineChart({
    title: `${words(result)[0].toUpperCase()}${words(result).slice(1)} by ${words(foot)}`,
    x: { label: words(foot), log, ticks: log ? values : undefined, exact: !log, format: (value) => `${footFormat(value)}${foot === "cpus" ? ` CPU${value === 1 ? "" : "s"}` : ""}`, axisFormat: footFormat },
    y: { label: words(result), log: scale === "log" && !/_share$|_rate$|index/.test(result), format, axisFormat: /_share$|_rate$/.test(result) ? (share) => `${trim((share * 100).toPrecision(3))}%` : /_bytes$|_ns$/.test(result) ? format : short },
    series,
  }).node;
}

function simulateCharts(rows) {
  const fields = simulateFields(rows);
  const names = unique(rows.map((row) => row.engine));
  const workloads = unique(rows.map((row) => row.workload));
  const foot = fields.feet.includes(state.get("foot")) ? state.get("foot") : fields.feet[0];
  const first = ["frames_per_second", "zone_lock_wait_share"].filter((name) => fields.results.includes(name));
  const results = [...first, ...fields.results.filter((name) => !first.includes(name))];
  if (!foot || results.length === 0) return el("p", { class: "quiet" }, "Only one size was simulated: there is no curve to draw. The table has the figures.");
  const chosen = { workload: workloads.includes(state.get("workload")) ? state.get("workload") : workloads[0], foot, result: results.includes(state.get("result")) ? state.get("result") : results[0], fixed: {}, scale: state.get("scale") === "linear" ? "linear" : "log" };
  const controls = el("div", { class: "controls" });
  const box = el("div", { class: "charts" });

  function draw() {
    const others = fields.settings.filter((name) => name !== chosen.foot);
    const own = rows.filter((row) => row.workload === chosen.workload);
    controls.replaceChildren(
      workloads.length > 1 ? choice("Workload", workloads.map((name) => [name, name]), chosen.workload, set("workload")) : "",
      fields.feet.length > 1 ? choice("Over", fields.feet.map((name) => [name, words(name)]), chosen.foot, set("foot")) : "",
      choice("Show", results.map((name) => [name, words(name)]), chosen.result, set("result")),
      ...others.flatMap((name) => {
        const values = unique(own.map((row) => row[name])).filter(Number.isFinite).sort((a, b) => a - b);
        if (!values.includes(chosen.fixed[name])) chosen.fixed[name] = values[0];
        return values.length < 2 ? [] : choice(words(name), values.map((value) => [value, fieldFormat(name)(value)]), chosen.fixed[name], (value) => {
          chosen.fixed[name] = Number(value);
          draw();
        });
      }),
      radios("Scale", [["log", "logarithmic"], ["linear", "from zero"]], chosen.scale, (now) => {
        chosen.scale = now;
        remember("scale", now);
        plot();
      }));
    plot();
  }

  function plot() {
    const others = fields.settings.filter((name) => name !== chosen.foot);
    const own = rows.filter((row) => row.workload === chosen.workload);
    const shown = own.filter((row) => others.every((name) => row[name] === undefined || row[name] === chosen.fixed[name]));
    // The wait for the lock is why throughput bends: beside it, unless it is what was asked for.
    const beside = chosen.result !== "zone_lock_wait_share" && results.includes("zone_lock_wait_share") ? ["zone_lock_wait_share"] : [];
    box.replaceChildren(
      ...[chosen.result, ...beside].map((result) => simulateChart(shown, fields, names, chosen.foot, result, chosen.scale)),
      shown.some((row) => row.bound === "think") ? el("p", { class: "quiet" }, "A hollow mark: the workload itself is the limit there, not the allocator.") : "");
  }

  function set(name) {
    return (value) => {
      chosen[name] = value;
      remember(name, value);
      draw();
      // The list that was just used is a new one: the focus goes where it was.
      [...controls.querySelectorAll("select")].find((list) => list.value === value)?.focus();
    };
  }

  draw();
  return el("div", {}, controls, box);
}

/** What is told of the allocations that began in a window: [field, what it is]. */
const LATENCIES = [["p99_ns", "99 % of them took at most"], ["p50_ns", "half of them took at most"], ["max_ns", "the longest took"]];

/** How long allocations took over the simulated time of one machine, which is chosen. */
function simulateLatency(rows) {
  const varied = SETTINGS.filter((name) => unique(rows.map((row) => row[name])).length > 1);
  const caseOf = (row) => [row.workload, ...varied.filter((name) => row[name] !== undefined).map((name) => `${words(name)} ${fieldFormat(name)(row[name])}`)].join(", ");
  const timed = rows.filter((row) => row.allocation_latency?.max_ns?.length > 0);
  const cases = unique(timed.map(caseOf));
  const chosen = { of: cases.includes(state.get("latency-of")) ? state.get("latency-of") : cases[cases.length - 1], what: LATENCIES.some(([field]) => field === state.get("latency")) ? state.get("latency") : "p99_ns" };
  const box = el("div", {});

  function draw() {
    const own = timed.filter((row) => caseOf(row) === chosen.of);
    const places = engineSeries(own.map((row) => row.engine));
    const shown = own.map((row, i) => ({ name: row.engine, index: places[i], latency: row.allocation_latency }));
    const name = LATENCIES.find(([field]) => field === chosen.what)[1];
    box.replaceChildren(
      lineChart({
        title: `Allocations by when they began: ${name}`,
        x: { label: "simulated time", exact: true, format: duration, axisFormat: shortDuration },
        y: { label: name, log: true, format: duration, axisFormat: shortDuration },
        series: shown.map(({ name, index, latency }) => ({ name, index, points: latency[chosen.what].map((ns, i) => [latency.window_ns * i, ns]).filter((_, i) => latency.allocations[i] > 0) })),
      }).node,
      details("All windows", () => el("div", {}, shown.map((one) => latencyTable(one)))));
  }

  const list = (label, options, key, remembered) => choice(label, options, chosen[key], (value) => {
    chosen[key] = value;
    remember(remembered, value);
    draw();
  });
  draw();
  return el("div", {},
    el("div", { class: "controls" }, cases.length > 1 && list("Of", cases.map((name) => [name, name]), "of", "latency-of"), list("Show", LATENCIES, "what", "latency")),
    box);
}

function latencyTable({ name, latency }) {
  return table(name, ["from", "allocations", ...LATENCIES.map(([, what]) => what)], latency.allocations.map((allocations, i) => ({
    head: figure(latency.window_ns * i, duration(latency.window_ns * i)),
    cells: [figure(allocations), ...LATENCIES.map(([field]) => figure(latency[field][i], duration(latency[field][i])))].map((content) => ({ class: "number", content })),
  })));
}

function simulateTable(rows) {
  const columns = unique(rows.flatMap((row) => Object.keys(row).filter((name) => row[name] === null || typeof row[name] !== "object")));
  const order = ["workload", "engine", "cpus", ...columns.filter((name) => !["workload", "engine", "cpus"].includes(name))].filter((name) => columns.includes(name));
  return table("Every row of the simulation", order.map(words), rows.map((row) => ({
    head: row[order[0]],
    cells: order.slice(1).map((name) => ({ class: typeof row[name] === "number" ? "number" : undefined, content: figure(typeof row[name] === "boolean" ? (row[name] ? "yes" : "no") : row[name], typeof row[name] === "number" ? fieldFormat(name)(row[name]) : undefined) })),
  })));
}

function validation(rows) {
  const format = (value) => (typeof value === "number" ? figure(value) : figure(value));
  const known = ["workload", "engine", "cpus", "measured", "simulated"];
  const more = unique(rows.flatMap((row) => Object.keys(row))).filter((name) => !known.includes(name) && name !== "difference_percent");
  return table("The same workload on this machine and in the simulation", ["Workload", "Engine", "CPUs", "measured", "simulated", "difference", ...more.map(words)], rows.map((row) => {
    const percent = ((row.simulated - row.measured) / row.measured) * 100;
    const far = Math.abs(percent) > 20;
    return { head: row.workload, cells: [row.engine, format(row.cpus), format(row.measured), format(row.simulated),
      { class: `number ${far ? "worse" : ""}`, content: Number.isFinite(percent) ? [signed(percent), far ? " (beyond 20%)" : ""] : "–" }, ...more.map((name) => format(row[name]))] };
  }));
}

function simulateDocument(document) {
  const rows = document.rows || [];
  const model = leaves(document.model);
  return [
    el("h2", {}, rows.length > 0 ? "Simulation" : "Cost model"),
    document.verdict && el("p", { class: "verdict" }, document.verdict),
    document.seed !== undefined && el("p", { class: "quiet" }, "Seed ", figure(document.seed, String(document.seed)), ": the same seed gives the same figures."),
    rows.length > 0 && [el("h3", { id: "scaling" }, "Scaling"), simulateCharts(rows)],
    rows.some((row) => row.allocation_latency) && [el("h3", { id: "latency" }, "Allocation latency over time"), simulateLatency(rows)],
    document.validation?.length > 0 && [el("h3", { id: "validation" }, "Validation"), validation(document.validation)],
    model.length > 0 && [el("h3", { id: "model" }, "What operations cost in the model"),
      details(`${plural(model.length, "constant")} of the cost model`, () => table("Constants, as measured by freehold calibrate", ["Constant", "Value"], model.map(([name, value]) => ({ head: el("code", {}, name), cells: [figure(value, typeof value === "number" ? String(value) : undefined)] }))))],
    rows.length > 0 && details(`All ${plural(rows.length, "row")}`, () => simulateTable(rows)),
  ];
}
