// A run of the benchmarks: medians side by side, the spread of the runs, and what the machine itself costs.

/** A list's values once each, in the order of their first coming. */
function unique(values) {
  return [...new Set(values)];
}

/** The row's percentage against the baseline: the one in the JSON, or worked out against the first engine. */
function benchChange(row, base) {
  const better = ["less", "more"].includes(row.better) ? row.better : row.better === undefined && /^(ns|us|ms|s)$/.test(row.unit) ? "less" : undefined;
  if (row === base) return "";
  const star = row.significant === true ? el("span", { class: "significant", title: "significant" }, "*", el("span", { class: "hidden" }, " significant")) : null;
  const given = typeof row.percent === "number";
  const badge = base && changeBadge(base.median, given ? base.median * (1 + row.percent / 100) : row.median, better);
  // As the JSON has it, for programs.
  if (badge && given) badge.replaceChildren(el("data", { value: String(row.percent) }, ...badge.childNodes));
  return badge ? el("span", { class: "nowrap" }, badge, star || el("span", { class: "significant" })) : "";
}

function benchBase(rows) {
  const named = rows.find((row) => typeof row.baseline === "string")?.baseline;
  return rows.find((row) => row.baseline === true) || rows.find((row) => row.engine === named) || rows[0];
}

/** What the benchmarks in the page are, by name. */
let benchmarksKnown = {};

/** What a benchmark is, and what it measures, as `freehold bench --list` says it; older versions had others. */
function benchAbout(benchmark) {
  const about = benchmarksKnown[benchmark] || {};
  return {
    what: about.what || "",
    // The first clause says what it is, the others how.
    title: (about.what || "").split(/[.:;](?=\s|$)/)[0].replace(/ \([^)]*$/, ""),
    of: (metric) => about.metrics?.find((one) => one.name === metric)?.what || "",
  };
}

const benchId = (benchmark) => `bench-${benchmark.replace(/[^\w-]+/g, "-")}`;

/** Medians of one benchmark: only the engines that have a figure in it. */
function benchTable(benchmark, rows, engines) {
  const about = benchAbout(benchmark);
  const lines = unique(rows.map((row) => row.metric)).map((metric) => {
    const found = rows.filter((row) => row.metric === metric);
    const base = benchBase(found);
    return {
      head: [words(metric), el("span", { class: "hint" }, found[0].unit), about.of(metric) && el("span", { class: "what" }, about.of(metric))],
      cells: engines.map((engine) => {
        const row = found.find((one) => one.engine === engine);
        return row ? { class: "number", content: [figure(row.median, number(row.median)), benchChange(row, base)] } : "–";
      }),
    };
  });
  return table("Medians of the runs; percentages are against the first engine", ["", ...engines], lines, { class: "comparison" });
}

/** Each metric of one benchmark as bars, with the least and the greatest of its runs. */
function benchBars(rows, engines, rmw, log) {
  const metrics = unique(rows.map((row) => row.metric)).map((metric) => {
    const found = rows.filter((row) => row.metric === metric);
    const timed = found[0].unit === "ns" && rmw > 0;
    const tested = found.some((row) => typeof row.p === "number");
    const runs = unique(found.map((row) => row.runs));
    const spread = found.some((row) => row.max > row.min);
    return bars({
      title: words(metric), note: [found[0].unit, runs.length === 1 && [", ", figure(runs[0]), ` run${runs[0] === 1 ? "" : "s"}`]], log,
      columns: ["median", timed && "in RMWs", spread && "least to greatest", tested && "p", runs.length > 1 && "runs"].filter(Boolean),
      rows: found.map((row) => ({
        name: row.engine, index: engineSeries(engines)[engines.indexOf(row.engine)], value: row.median, low: row.min, high: row.max,
        cells: [
          { class: "number", content: figure(row.median, number(row.median)) },
          timed && { class: "number quiet", content: `${decimal(row.median / rmw)}` },
          spread && { class: "number quiet", content: [figure(row.min, number(row.min)), " to ", figure(row.max, number(row.max))] },
          tested && { class: "number quiet", content: typeof row.p === "number" ? figure(row.p, decimal(row.p)) : "" },
          runs.length > 1 && { class: "number quiet", content: figure(row.runs) },
        ].filter(Boolean),
      })),
    });
  });
  return el("div", { class: "panels wide" }, metrics);
}

/** How long each operation took, where every one was timed by itself. */
function benchTimings(rows, engines) {
  const timed = rows.filter((row) => Array.isArray(row.histogram) && row.histogram.length > 1);
  return unique(timed.map((row) => row.metric)).map((metric) => distribution({
    title: words(metric), what: "operations", unit: "ns", format: (ns) => duration(ns),
    series: timed.filter((row) => row.metric === metric)
      .map((row) => ({ name: row.engine, index: engineSeries(engines)[engines.indexOf(row.engine)], buckets: row.histogram.map(([ns, count]) => [ns, ns, count]) })),
  }));
}

/** A group for each benchmark, the first open; `redraw(scale)` draws the bars of those opened so far anew. */
function benchGroups(rows, engines, rmw, scale) {
  const drawn = [];
  const groups = unique(rows.map((row) => row.benchmark)).map((benchmark, i) => {
    const own = rows.filter((row) => row.benchmark === benchmark);
    const named = unique(own.map((row) => row.engine));
    const metrics = unique(own.map((row) => row.metric)).length;
    const summary = [el("h3", {}, benchmark), el("span", { class: "quiet" }, ` ${plural(metrics, "metric")}, ${plural(named.length, "engine")}`)];
    return details(summary, () => {
      const box = el("div", {});
      const draw = () => box.replaceChildren(benchBars(own, engines, rmw, scale === "log"));
      drawn.push(draw);
      draw();
      return [el("p", { class: "quiet" }, benchAbout(benchmark).what), benchTable(benchmark, own, named), box, benchTimings(own, engines)];
    }, { class: "benchmark", id: benchId(benchmark), open: i === 0 });
  });
  const redraw = (now) => {
    scale = now;
    drawn.forEach((draw) => draw());
  };
  return { groups, redraw };
}

/** Where each benchmark is on the page. */
function benchContents(rows) {
  const go = (event, id) => {
    event.preventDefault();
    remember("at", id);
    reveal(id);
    document.getElementById(id).querySelector("summary").focus({ preventScroll: true });
  };
  return el("nav", { "aria-label": "Benchmarks", class: "contents" }, el("ul", {}, unique(rows.map((row) => row.benchmark)).map((benchmark) => {
    const id = benchId(benchmark);
    return el("li", {}, el("a", { href: `#view=bench&at=${encodeURIComponent(id)}`, on: { click: (event) => go(event, id) } }, benchmark),
      el("span", { class: "quiet" }, ` ${benchAbout(benchmark).title}`));
  })));
}

/** How each engine does beside the first, where runs tell them apart: one sentence. */
function benchVerdict(rows, engines) {
  const compared = rows.filter((row) => row.significant !== undefined && row.baseline && row.baseline !== true && ["less", "more"].includes(row.better) && typeof row.percent === "number");
  const texts = engines.map((engine) => {
    const own = compared.filter((row) => row.engine === engine);
    if (own.length === 0) return null;
    const sure = own.filter((row) => row.significant);
    const better = sure.filter((row) => (row.better === "less") === (row.percent < 0)).length;
    return `${engine} is better in ${thousands(better)} and worse in ${thousands(sure.length - better)} of ${plural(own.length, "metric")}`;
  }).filter(Boolean);
  return texts.length > 0 && el("p", { class: "verdict" }, `Against ${compared[0].baseline}: ${texts.join("; ")}. Only differences that are significant count.`);
}

/** What the figures lack, in sentences. Older results do not say it. */
function benchLacks(document) {
  return [
    document.interrupted && "The run was stopped before all was done.",
    document.pinned === false && "The system did not let threads choose their CPU.",
    document.barrier === false && "The system had no membarrier(2): owners of freehold's CPUs took an ordinary lock.",
    document.left_out?.length > 0 && `Left out, because they need two CPUs: ${document.left_out.join(", ")}.`,
    ...(document.unavailable || []),
  ].filter(Boolean);
}

function benchDocument(document) {
  const rows = (document.rows || []).filter((row) => typeof row.median === "number");
  const engines = unique(rows.map((row) => row.engine));
  const yardstick = document.yardstick || {};
  const names = { rmw_ns: "One atomic read-modify-write, uncontended", handover_ns: "Handing a cache line to another core", ring_alone_ns: "The ring of producer-consumer alone, without an engine, a frame" };
  const facts = Object.entries(yardstick).filter(([, value]) => typeof value === "number").map(([name, value]) =>
    el("div", {}, el("dt", {}, names[name] || words(name)), el("dd", {}, figure(value, name.endsWith("_ns") ? `${decimal(value)} ns` : number(value)))));
  const scale = state.get("scale") === "log" ? "log" : "linear";
  const { groups, redraw } = benchGroups(rows, engines, yardstick.rmw_ns, scale);
  const all = el("button", { type: "button", class: "play", on: { click: () => {
    const open = groups.some((group) => !group.open);
    groups.forEach((group) => { group.open = open; });
    all.textContent = open ? "Close all" : "Open all";
  } } }, "Open all");
  return [
    el("h2", {}, "Benchmarks"),
    benchVerdict(rows, engines),
    facts.length > 0 && [el("p", { class: "quiet" }, "What this machine itself costs, measured in the same run: compare machines by these figures, not by nanoseconds of the benchmarks."), el("dl", { class: "facts" }, facts)],
    benchLacks(document).map((text) => el("p", { class: "note" }, text)),
    rows.length === 0 ? el("p", { class: "note" }, "No benchmark was finished in this run.") : [
      groups.length > 1 && benchContents(rows),
      document.test && el("p", { class: "quiet" }, "* a difference that is significant", document.test.name ? [" (", document.test.name, ")"] : null, typeof document.test.level === "number" ? [", p below ", figure(document.test.level, String(document.test.level))] : null, "."),
      el("div", { class: "controls" }, radios("Bars", [["linear", "from zero"], ["log", "logarithmic"]], scale, (now) => {
        remember("scale", now);
        redraw(now);
      }), groups.length > 1 && all),
      groups,
    ],
    document.unsuited?.length > 0 && details("Not measured, and why", () => table("Not measured", ["Benchmark", "Engine", "Why"], document.unsuited.map((one) => ({ head: one.benchmark, cells: [{ class: "text", content: one.engine }, { class: "text", content: one.reason }] })))),
  ];
}
