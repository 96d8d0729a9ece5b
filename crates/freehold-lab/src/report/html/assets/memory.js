// The picture of physical memory over time: a map for each engine at the same moment, a slider through the moments, and
// a table that is the legend and the text of the picture at once.

/** `engines` are {name, map}; `start` the time of the trace's first event; `clock` tells other charts the moment. */
function memoryView(engines, start, cpus, clock) {
  const readers = engines.map((engine) => mapReader(engine.map));
  const times = engines[0].map.ts_ns;
  const last = times.length - 1;
  const perCell = engines[0].map.blocks_per_cell;
  const cells = Math.max(...engines.map((engine) => engine.map.cells));
  const kinds = [["holder", "holder"], ["migratetype", "migratetype"], ["fullness", "fullness"]];
  let kind = kinds.some(([key]) => key === state.get("colour")) ? state.get("colour") : "holder";
  let moment = stateNumber("moment", last, last);
  let marked = -1;
  let timer = null;

  const slider = el("input", { type: "range", id: freshId("moment"), min: 0, max: last, step: 1, value: moment, class: "moment", on: { input: () => { stop(); go(Number(slider.value), true); } } });
  const when = el("output", { for: slider.id, class: "when" });
  const play = el("button", { type: "button", class: "play", on: { click: () => (timer === null ? run() : stop()) } }, "Play");
  const legend = el("div", {});
  const keys = el("div", { class: "legend", "aria-hidden": "true" });
  const readout = el("output", { class: "readout", "aria-live": "polite" }, "Point at a cell, or move to a map and press the arrow keys, to see what it is on every engine.");
  const maps = readers.map((reader, i) => makeMap(reader, engines[i].name));

  function makeMap(reader, name) {
    const canvas = el("canvas", { class: "map", tabindex: 0, role: "application", "aria-roledescription": "map of memory", "aria-label": `Pageblocks of ${name}. Arrow keys move from cell to cell; the table below has the counts.` });
    const box = el("div", { class: "map-box" }, canvas);
    const one = { reader, canvas, layout: null, name };
    const redraw = whenSized(box, (width) => {
      one.layout = mapLayout(reader.map.cells, width);
      paint(one);
    });
    one.stat = el("span", { class: "quiet" });
    one.node = el("figure", { class: "map-figure" }, el("figcaption", {}, el("strong", {}, name), " ", one.stat), box);
    one.redraw = redraw;
    canvas.addEventListener("keydown", (event) => {
      const { columns } = one.layout;
      const now = marked < 0 ? -1 : marked;
      const to = { ArrowRight: now + 1, ArrowLeft: now - 1, ArrowDown: marked < 0 ? 0 : now + columns, ArrowUp: now - columns, Home: 0, End: cells - 1 }[event.key];
      if (event.key === "Escape") mark(-1);
      if (to === undefined) return;
      event.preventDefault();
      mark(Math.min(Math.max(to, 0), reader.map.cells - 1));
    });
    const point = (event) => {
      const rectangle = canvas.getBoundingClientRect();
      const { columns, size } = one.layout;
      const cell = Math.floor((event.clientY - rectangle.top) / size) * columns + Math.min(Math.floor((event.clientX - rectangle.left) / size), columns - 1);
      mark(cell >= 0 && cell < reader.map.cells ? cell : -1);
    };
    canvas.addEventListener("pointermove", point);
    canvas.addEventListener("pointerdown", point);
    return one;
  }

  function paint(one) {
    if (!one.layout) return;
    const planes = one.reader.moment(moment);
    drawMap(one.canvas, one.layout, one.reader, planes, colouring(kind, cpus), marked < one.reader.map.cells ? marked : -1);
    let [free, whole] = [0, 0];
    planes.free.forEach((frames, cell) => {
      free += frames;
      whole += Number(frames === one.reader.frames[cell]);
    });
    one.stat.textContent = `${bytes(free * FRAME_BYTES)} free, ${plural(whole, perCell > 1 ? "cell" : "block")} wholly free`;
  }

  function mark(cell) {
    marked = cell;
    maps.forEach(paint);
    if (cell < 0) {
      readout.replaceChildren();
      return;
    }
    const { map, frames } = readers[0];
    const first = map.start_pfn + cell * perCell * PAGEBLOCK_FRAMES;
    const range = `PFN 0x${first.toString(16)} to 0x${(first + frames[cell] - 1).toString(16)}`;
    readout.replaceChildren(
      el("span", { class: "pair" }, el("b", {}, perCell > 1 ? `Cell ${cell} (${perCell} blocks)` : `Block ${cell}`), ` ${range}`),
      ...maps.filter((one) => cell < one.reader.map.cells).map((one) => {
        const planes = one.reader.moment(moment);
        const holder = planes.holder[cell] === 0 ? "the zone" : `CPU ${planes.holder[cell] - 1}`;
        const type = MIGRATETYPES[planes.migratetype[cell]] || planes.migratetype[cell];
        return el("span", { class: "pair" }, el("b", {}, `${one.name}:`), ` ${holder}, ${type}, ${thousands(planes.free[cell])} of ${thousands(one.reader.frames[cell])} frames free`);
      }));
  }

  /** The legend: how many cells of each colour there are at this moment, on each engine. */
  function count() {
    const scheme = colouring(kind, cpus);
    const counts = readers.map((reader) => {
      const planes = reader.moment(moment);
      const found = new Array(scheme.count).fill(0);
      for (let cell = 0; cell < reader.map.cells; cell += 1) found[scheme.of(planes, cell, reader.frames)] += 1;
      return found;
    });
    const key = (colour) => el("span", { class: colour ? "swatch" : "swatch hollow", style: colour ? `background: ${css(colour)}` : "", "aria-hidden": "true" });
    let rows = Array.from({ length: scheme.count }, (_, i) => ({ i, found: counts.map((one) => one[i]) }))
      .filter((row) => row.found.some((n) => n > 0))
      .map((row) => ({ head: [key(scheme.colour(row.i)), scheme.name(row.i)], cells: row.found.map((n) => figure(n)) }));
    if (scheme.many) {
      const held = counts.map((one) => one.slice(1).reduce((sum, n) => sum + n, 0));
      const gradient = el("span", { class: "swatch wide", "aria-hidden": "true", style: `background: linear-gradient(90deg, ${[0, 0.5, 1].map((share) => css(scheme.colour(1 + Math.round(share * (cpus - 1))))).join(", ")})` });
      rows = [{ head: [key(scheme.colour(0)), "the zone"], cells: counts.map((one) => figure(one[0])) },
        { head: [gradient, `CPU 0 to ${cpus - 1}`], cells: held.map((n) => figure(n)) }];
    }
    keys.replaceChildren(...rows.map((row) => el("span", { class: "pair" }, row.head[0].cloneNode(), row.head[1])));
    const unit = perCell > 1 ? `cells of ${perCell} pageblocks` : "pageblocks";
    legend.replaceChildren(table(`${unit[0].toUpperCase()}${unit.slice(1)} by ${kind} at this moment`, ["", ...engines.map((engine) => engine.name)], rows, { class: "legend-table" }));
  }

  function go(to, tell) {
    moment = Math.min(Math.max(to, 0), last);
    slider.value = moment;
    const text = `${duration(times[moment] - start)} into the trace, moment ${moment + 1} of ${last + 1}`;
    slider.setAttribute("aria-valuetext", text);
    when.textContent = text;
    maps.forEach(paint);
    count();
    if (marked >= 0) mark(marked);
    if (tell) {
      remember("moment", moment);
      clock.tell(times[moment]);
    }
  }

  function run() {
    if (moment === last) go(0, true);
    play.textContent = "Pause";
    timer = setInterval(() => (moment === last || !slider.isConnected ? stop() : go(moment + 1, true)), 160);
  }

  function stop() {
    if (timer !== null) clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }

  clock.listen((time) => {
    const nearest = times.reduce((best, now, i) => (Math.abs(now - time) < Math.abs(times[best] - time) ? i : best), 0);
    if (nearest !== moment) go(nearest, false);
  });
  const repaint = () => {
    maps.forEach(paint);
    count();
  };
  redrawOnTheme.add(repaint);
  go(moment, false);

  const stands = perCell > 1
    ? `Each cell stands for ${perCell} neighbouring pageblocks (${bytes(perCell * PAGEBLOCK_FRAMES * FRAME_BYTES)}): its holder and type are those that most of them have, its fullness is that of all.`
    : "Each cell is a pageblock of 2 MiB.";
  return el("div", {},
    el("p", { class: "quiet" }, `${stands} Addresses rise from left to right and from top to bottom. Coloured by holder or migratetype, a cell is filled from below as far as it is in use; where cells are too small for that, its colour is the stronger the more of it is in use. Of freehold, the holder is the first CPU that leases words of the block.`),
    el("div", { class: "controls" },
      radios("Colour by", kinds, kind, (now) => {
        kind = now;
        remember("colour", now);
        repaint();
      })),
    el("div", { class: "controls sticky" }, el("label", { for: slider.id }, "Moment"), slider, play, when),
    keys,
    el("div", { class: "maps" }, maps.map((one) => one.node)),
    readout, legend);
}
