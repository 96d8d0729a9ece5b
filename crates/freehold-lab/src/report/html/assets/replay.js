// A replay: what each engine would have cost on one trace.

/** Rows of the comparison: [name, value of an engine, how to print it, what more of it means]. */
const REPLAY_ROWS = [
  ["Replayed", [
    ["allocations", (e) => e.allocs],
    ["frees", (e) => e.frees],
    ["failures", (e) => e.failed, number, "less"],
    ["freed on another CPU, in the trace", (_, d) => d.trace.remote_frees],
  ]],
  ["Zone lock", [
    ["zone locks / 1,000 events", (e) => perThousand(e.zone_lock_acquisitions, e), decimal, "less"],
    ["shared writes / 1,000 events", (e) => (typeof e.shared_writes === "number" ? perThousand(e.shared_writes, e) : null), decimal, "less"],
    ["zone steps / 1,000 events", (e) => perThousand(e.zone_lock_work, e), decimal, "less"],
    ["steps per hold, mean", (e) => e.zone_lock_work_mean, decimal, "less"],
    ["steps per hold, p99", (e) => e.zone_lock_work_p99, number, "less"],
    ["steps per hold, max", (e) => e.zone_lock_work_max, number, "less"],
    ["merges under the zone lock", (e) => e.merges_zone, number, "less"],
    ["merges under a PCP lock", (e) => e.merges_pcp],
  ]],
  ["Per-CPU lists", [
    ["PCP locks / 1,000 events", (e) => (typeof e.pcp_lock_acquisitions === "number" ? perThousand(e.pcp_lock_acquisitions, e) : null), decimal, "less"],
    ["PCP steps / 1,000 events", (e) => (typeof e.pcp_lock_work === "number" ? perThousand(e.pcp_lock_work, e) : null), decimal, "less"],
    ["PCP hit rate", (e) => e.pcp_hit_rate, percentOf, "more"],
    ["refills", (e) => e.refills, number, "less"],
    ["drains", (e) => e.drains, number, "less"],
    ["frees outside the CPU’s own lists", (e) => e.remote_frees],
  ]],
  ["Fragmentation", [
    ["fallbacks", (e) => e.fallbacks, number, "less"],
    ["mixed blocks at the end", (e) => e.mixed_blocks, number, "less"],
    ["wholly free blocks at the end", (e) => e.free_blocks_end, number, "more"],
    ["largest free order at the end", (e) => e.largest_free_order_end],
    ["unusable index, order 9, min", (e) => e.unusable_index_min, decimal, "less"],
    ["unusable index, order 9, mean", (e) => e.unusable_index_mean, decimal, "less"],
    ["unusable index, order 9, max", (e) => e.unusable_index_max, decimal, "less"],
    ["lost frames", (e) => e.lost_frames, number, "less"],
  ]],
  ["Cost", [["ns per event (noisy)", (e) => e.ns_per_event, decimal, "less"]]],
];

/** What can be shown over time: [field, name, format, axis]. */
const TIMELINES = [
  ["unusable_index_order9", "unusable-free-space index, order 9", decimal],
  ["free_blocks", "wholly free pageblocks", number],
  ["mixed_blocks", "pageblocks of mixed types", number],
  ["free_frames", "free memory", (frames) => bytes(frames * FRAME_BYTES)],
  ["pcp_frames", "free memory held by CPUs", (frames) => bytes(frames * FRAME_BYTES)],
  ["zone_lock_acquisitions", "zone-lock acquisitions so far", number],
  ["shared_writes", "writes to lines that all CPUs share so far", number],
  ["zone_lock_work", "work under the zone lock so far, steps", number],
  ["fallbacks", "fallbacks so far", number],
];

/** Per 1,000 allocations and frees that the engine carried out. */
function perThousand(total, engine) {
  const events = engine.allocs + engine.frees;
  return events ? (total * 1000) / events : 0;
}

/** A change against the baseline, with its direction in words for readers who see no colours. */
function changeBadge(base, value, better) {
  const text = change(base, value);
  if (text === null) return el("span", { class: "change" });
  const much = Math.abs(value - base) > Math.abs(base) / 100;
  const good = better === "less" ? value < base : value > base;
  if (!better || !much) return el("span", { class: "change" }, text);
  return el("span", { class: `change ${good ? "better" : "worse"}` }, text, el("span", { class: "hidden" }, good ? " better" : " worse"));
}

function replayTable(document) {
  const equal = [];
  const rows = REPLAY_ROWS.flatMap(([group, metrics]) => {
    const own = metrics.flatMap(([name, of, format, better]) => {
      const values = document.engines.map((engine) => of(engine, document));
      const same = values.every((value) => value === values[0]);
      if (same && values.length > 1) {
        if (typeof values[0] === "number") equal.push(`${name} ${(format || number)(values[0])}`);
        return [];
      }
      return [{
        head: [name, better && el("span", { class: "hint" }, better === "less" ? "less is better" : "more is better")],
        cells: values.map((value, i) => {
          if (typeof value !== "number") return value === null ? "none" : "–";
          const badge = i > 0 && typeof values[0] === "number" ? changeBadge(values[0], value, better) : null;
          return { class: "number", content: [figure(value, (format || number)(value)), badge] };
        }),
      }];
    });
    return own.length > 0 ? [{ group }, ...own] : [];
  });
  return [
    table("Each engine on this trace; percentages are against the first", ["", ...document.engines.map((engine) => engine.engine)], rows, { class: "comparison" }),
    equal.length > 0 && el("p", { class: "quiet" }, `Equal for all engines: ${equal.join("; ")}.`),
  ];
}

function replayFacts(document) {
  const { trace, machine } = document;
  const facts = [
    ["Events", figure(trace.events)],
    document.replayed_events !== undefined && ["Replayed events", figure(document.replayed_events)],
    ["CPUs in the trace", figure(trace.cpus)],
    ["Time", figure(trace.span_ns, duration(trace.span_ns))],
    ["Peak live memory", figure(trace.peak_live_frames, bytes(trace.peak_live_frames * FRAME_BYTES))],
    ["Freed on another CPU", figure(trace.remote_free_share, percentOf(trace.remote_free_share))],
    machine && ["Machine", [figure(machine.cpus), " CPUs, ", figure(machine.memory_frames, bytes(machine.memory_frames * FRAME_BYTES))]],
    machine?.free_frames_begin !== undefined && ["Free at the start", figure(machine.free_frames_begin, bytes(machine.free_frames_begin * (machine.page_size || FRAME_BYTES)))],
    machine?.free_frames_left_out > 0 && ["Free when recorded, in use here", figure(machine.free_frames_left_out, bytes(machine.free_frames_left_out * (machine.page_size || FRAME_BYTES)))],
  ];
  return el("dl", { class: "facts" }, facts.filter((fact) => fact && fact[1]).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

/** What the replay itself answered: warnings first, who is best at what, and whether the zone lock is a problem. */
function replayAnswer({ answer }) {
  if (!answer) return null;
  const lock = answer.zone_lock;
  const share = (part) => (part === 0 ? "0 %" : part < 0.0001 ? "<0.01 %" : `${(part * 100).toFixed(part > 0 && part < 0.01 ? 2 : 1)} %`);
  return el("div", { class: "verdict" },
    answer.warnings.map((said) => el("p", { class: "note" }, el("b", {}, "Warning: "), said)),
    answer.sentences.length > 0 && el("ul", {}, answer.sentences.map((said) => el("li", {}, said))),
    lock && [
      el("p", {}, lock.sentences.join(" ")),
      table("By the model: the share of the recorded time that the zone lock would have been held, and the share of their time that more CPUs, each as busy as these, would wait for it",
        ["", "held here", ...lock.cpus.map((cpus) => `wait, ${cpus} CPUs`)],
        lock.engines.map((one) => ({ head: one.engine, cells: [one.held_share, ...one.waiting_shares].map((part) => ({ class: "number", content: figure(part, share(part)) })) })), { class: "comparison" }),
      el("p", { class: "quiet" }, `Both are the model’s, not measured, and the wait is a floor: requests are taken to come evenly. Shared writes cost nothing in it. Its constants are of: ${lock.model}.`),
    ]);
}

/** What the counts of events count. */
const EVENTS = "Events are all that the kernel recorded here: allocations, frees, and what it said of its own refills, drains and fallbacks. Replayed events: the allocations and frees that each engine was asked for, including allocations of frames that were in use before recording began; “per 1,000 events” means those that it carried out.";

/** Where a reader looks for latency over time. */
const NO_LATENCY = "How long an allocation took is not known of a replay: its calls come one after the other, so that none finds a lock held. freehold bench tails times every allocation by itself. freehold simulate --trace has the latency over time by the model’s constants.";

function replayBars(document) {
  const panels = [
    ["Zone-lock acquisitions", "per 1,000 events", (e) => perThousand(e.zone_lock_acquisitions, e), decimal],
    ["Work under the lock", "steps per 1,000 events", (e) => perThousand(e.zone_lock_work, e), decimal],
    ["Longest hold", "steps", (e) => e.zone_lock_work_max, number],
  ];
  return el("div", { class: "panels" }, panels.map(([title, note, of, format]) => {
    const base = of(document.engines[0]);
    const places = engineSeries(document.engines.map((engine) => engine.engine));
    return bars({ title, note, columns: ["", "vs first"], rows: document.engines.map((engine, i) => ({
      name: engine.engine, index: places[i], value: of(engine),
      cells: [{ class: "number", content: figure(of(engine), format(of(engine))) }, { class: "number", content: i > 0 ? changeBadge(base, of(engine), "less") : "" }],
    })) });
  }));
}

/** The moment that charts and the picture share. */
function makeClock() {
  const listeners = [];
  let telling = false;
  return {
    listen: (listener) => listeners.push(listener),
    tell: (time) => {
      if (telling) return;
      telling = true;
      listeners.forEach((listener) => listener(time));
      telling = false;
    },
  };
}

function replayTimeline(engines, start, clock) {
  const box = el("div", {});
  let chart = null;
  const offered = TIMELINES.filter(([field]) => engines.some((engine) => engine.timeline[field]?.length > 0));
  const draw = (field) => {
    const [, name, format] = TIMELINES.find((row) => row[0] === field);
    const first = engines[0].timeline;
    const frames = field.endsWith("_frames");
    chart = lineChart({
      title: `${name[0].toUpperCase()}${name.slice(1)} over time`,
      x: { label: "time into the trace", exact: true, format: duration, axisFormat: shortDuration },
      y: { label: name, format, axisFormat: frames ? format : short, binary: frames, most: field === "unusable_index_order9" ? 0.1 : undefined },
      series: engines.map((engine) => ({ name: engine.engine, index: engine.index, points: engine.timeline.ts_ns.map((ts, i) => [ts - start, engine.timeline[field]?.[i]]).filter((point) => Number.isFinite(point[1])) })),
      area: { name: "live memory of the trace", points: first.ts_ns.map((ts, i) => [ts - start, first.live_frames[i]]), binary: true, format: (n) => bytes(n * FRAME_BYTES), axisFormat: (n) => bytes(n * FRAME_BYTES) },
      moved: (time) => clock.tell(time + start),
    });
    box.replaceChildren(chart.node);
  };
  const wanted = offered.some(([field]) => field === state.get("over-time")) ? state.get("over-time") : offered[0][0];
  draw(wanted);
  clock.listen((time) => chart.moveTo(time - start));
  return el("div", {},
    el("div", { class: "controls" }, choice("Show", offered, wanted, (field) => {
      remember("over-time", field);
      draw(field);
    })),
    box);
}

function againstKernel(against) {
  const rows = against.engines.flatMap((one) => [["frames refilled under the zone lock", one.refilled_frames], ["frames drained", one.drained_frames]].map(([what, found]) => ({
    head: `${one.engine}: ${what}`,
    cells: [figure(found.kernel), figure(found.engine), figure(found.difference_percent, found.difference_percent === null ? "–" : signed(found.difference_percent)), found.within ? "yes" : "no"],
  })));
  return [el("h3", {}, `Against the recording kernel's own counts, zone ${against.zone}`),
    table("What the recording kernel counted, and the engine", ["", "kernel", "engine", "difference", "within 15%"], rows)];
}

function replayDocument(document) {
  const { trace } = document;
  const heading = el("h2", {}, trace.name || "a trace");
  if (!document.engines) return [heading, el("p", { class: "note" }, `This trace could not be read: ${document.error}`)];
  const places = engineSeries(document.engines.map((engine) => engine.engine));
  const engines = document.engines.map((engine, i) => ({ ...engine, index: places[i] }));
  const broken = engines.filter((engine) => engine.whole === false);
  const timed = engines.filter((engine) => engine.timeline?.ts_ns?.length > 1);
  const held = engines.filter((engine) => engine.zone_lock_work_histogram?.length > 0);
  const mapped = engines.filter((engine) => engine.memory_map);
  const start = timed.length > 0 && trace.span_ns ? timed[0].timeline.ts_ns[timed[0].timeline.ts_ns.length - 1] - trace.span_ns : timed[0]?.timeline.ts_ns[0] || mapped[0]?.memory_map.ts_ns[0] || 0;
  const clock = makeClock();
  return [
    heading,
    el("p", { class: "quiet" }, [trace.format, trace.kernel && trace.kernel.split(/\s+/).slice(0, 2).join(" ")].filter(Boolean).join(", ")),
    broken.map((engine) => el("p", { class: "note" }, el("b", {}, `Engine ${engine.engine} lost frames or failed its checks: `), (engine.errors || []).join("; "))),
    replayAnswer(document),
    replayFacts(document),
    el("p", { class: "quiet" }, EVENTS),
    el("h3", { id: "zone-lock" }, "The zone lock"),
    replayBars(document),
    el("h3", { id: "comparison" }, "Comparison"),
    replayTable(document),
    held.length > 0 && [
      el("h3", { id: "holds" }, "How long the zone lock is held"),
      el("p", { class: "quiet" }, "In steps of work done in one hold: a list link, a merge, a bitmap word, a block moved."),
      distribution({ title: "Work per hold", what: "holds", unit: "steps", format: number, series: held.map((engine) => ({ name: engine.engine, index: engine.index, buckets: engine.zone_lock_work_histogram })) }),
    ],
    replayOrders(document),
    timed.length > 0 && [el("h3", { id: "fragmentation" }, "Over time"), replayTimeline(timed, start, clock)],
    el("p", { class: "quiet" }, NO_LATENCY),
    el("h3", { id: "memory" }, "Physical memory"),
    mapped.length > 0
      ? memoryView(mapped.map((engine) => ({ name: engine.engine, map: engine.memory_map })), start, document.machine?.cpus || 1, clock)
      : el("p", { class: "quiet" }, "There is no picture of memory in this file: ", el("code", {}, "freehold replay --json --memory-map 48"), " records one."),
    document.against_kernel && againstKernel(document.against_kernel),
    details("Every field of the JSON", () => el("div", {}, fieldsTable("The trace", [trace.name], [trace]), ...(document.machine ? [fieldsTable("The machine", ["recorded, and as it was built"], [document.machine])] : []), fieldsTable("The engines", engines.map((engine) => engine.engine), document.engines.map(({ timeline, memory_map, by_order, ...rest }) => rest)))),
  ];
}
