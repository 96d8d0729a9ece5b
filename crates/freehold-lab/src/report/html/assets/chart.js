// Charts of curves: over time, over CPUs, distributions. Drawn in the pixels there are, so that text keeps its size on a
// phone; drawn again when those change.
//
// With the pointer or, focused, with the arrow keys a cursor moves along x; what each curve has there is written below,
// where a screen reader hears it. Each name in the legend is a button that hides its curve.

/**
 * A chart.
 *   title, note       what it shows; a sentence more
 *   x, y              {label, log, format, exact, ticks, zero}
 *   series            [{name, index, points: [[x, y, low, high, note], ...], step, marks, hollow}]; low, high and note are
 *                     optional; the note stands behind the figure when the cursor is there; hollow(point) outlines a mark
 *   area              {name, points} behind the curves, on a scale of its own from 0; `format` for its values
 *   moved             called with the x that the cursor is at
 * Returns {node, moveTo(x)}.
 */
function lineChart({ title, note, x, y, series, area, moved, height }) {
  const hidden = new Set();
  const plot = el("div", { class: "plot", tabindex: 0, role: "group", "aria-roledescription": "chart", "aria-label": `${title}. ${describe()} Arrow keys move a cursor.` });
  const readout = el("output", { class: "readout", "aria-live": "polite" });
  const xs = [...new Set(series.flatMap((one) => one.points.map((point) => point[0])))].sort((a, b) => a - b);
  let cursor = null;
  let geometry = null;

  function describe() {
    return series.filter((one) => one.points.length > 0).map((one) => {
      const values = one.points.map((point) => point[1]);
      return `${one.name}: from ${y.format(values[0])} to ${y.format(values[values.length - 1])}, at least ${y.format(Math.min(...values))}, at most ${y.format(Math.max(...values))}.`;
    }).join(" ");
  }

  function draw(width) {
    const shown = series.filter((one) => !hidden.has(one.name));
    const tall = height || (width < 520 ? 230 : 280);
    const positive = (value) => !y.log || value > 0;
    const values = shown.flatMap((one) => one.points.flatMap((point) => point.slice(1).filter((v) => Number.isFinite(v) && positive(v))));
    const least = values.length ? Math.min(...values) : 0;
    const most = values.length ? Math.max(...values) : 1;
    const rows = Math.floor(tall / 55);
    const makeY = (start, end) => y.log
      ? logScale(powerBelow(least), powerAbove(most), start, end, rows + 2)
      : linearScale(y.zero === false ? least : Math.min(0, least), y.most === undefined ? most : Math.max(most, y.most), start, end, rows, y.binary);
    const bottom = tall - 40;
    const vertical = makeY(bottom, 10);
    const labels = vertical.ticks.map((tick) => (y.axisFormat || short)(tick));
    const left = 14 + 7 * Math.max(...labels.map((label) => label.length), 2);
    const right = width - (area ? 56 : 14);
    const columns = Math.max(Math.floor((right - left) / (width < 520 ? 62 : 85)), 2);
    const horizontal = x.log
      ? logScale(Math.max(xs[0], Number.MIN_VALUE), xs[xs.length - 1], left + 6, right - 6, columns, x.ticks)
      : (x.exact ? exactScale : linearScale)(xs[0] ?? 0, xs[xs.length - 1] ?? 1, left, right, columns);
    geometry = { horizontal, vertical, left, right, bottom, shown };

    const picture = svg("svg", { width, height: tall, viewBox: `0 0 ${width} ${tall}`, role: "img", "aria-label": title });
    if (area) {
      const top = Math.max(...area.points.map((point) => point[1]), 1);
      const scale = linearScale(0, top, bottom, 10, 3, area.binary);
      const line = area.points.map(([px, py]) => `${horizontal.at(px).toFixed(1)},${scale.at(py).toFixed(1)}`);
      const first = horizontal.at(area.points[0][0]).toFixed(1);
      const last = horizontal.at(area.points[area.points.length - 1][0]).toFixed(1);
      picture.append(svg("polygon", { class: "area", points: `${first},${bottom} ${line.join(" ")} ${last},${bottom}` }));
      scale.ticks.forEach((tick) => picture.append(
        svg("text", { class: "tick", x: right + 6, y: scale.at(tick) + 4, "text-anchor": "start" }, area.axisFormat(tick))));
    }
    vertical.ticks.forEach((tick, i) => picture.append(
      svg("line", { class: "grid", x1: left, x2: right, y1: vertical.at(tick), y2: vertical.at(tick) }),
      svg("text", { class: "tick", x: left - 6, y: vertical.at(tick) + 4, "text-anchor": "end" }, labels[i])));
    // Labels keep clear of each other; seven pixels a character is a wide font's.
    let taken = -Infinity;
    horizontal.ticks.forEach((tick) => {
      const px = horizontal.at(tick);
      const anchor = px > right - 20 ? "end" : px < left + 12 ? "start" : "middle";
      const label = (x.axisFormat || x.format)(tick);
      const wide = label.length * 7;
      const start = px - { start: 0, middle: wide / 2, end: wide }[anchor];
      picture.append(svg("line", { class: "axis", x1: px, x2: px, y1: bottom, y2: bottom + 4 }));
      if (start < taken) return;
      taken = start + wide + 6;
      picture.append(svg("text", { class: "tick", x: px, y: bottom + 17, "text-anchor": anchor }, label));
    });
    picture.append(
      svg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }),
      svg("text", { class: "axis-label", x: (left + right) / 2, y: tall - 4, "text-anchor": "middle" }, x.label));

    shown.forEach((one) => {
      const colour = seriesColour(one.index);
      const points = one.points.filter((point) => Number.isFinite(point[1]) && positive(point[1]));
      const at = points.map((point) => [horizontal.at(point[0]), vertical.at(point[1])]);
      const line = at.map(([px, py], i) => {
        if (i === 0) return `M${px.toFixed(1)},${py.toFixed(1)}`;
        return one.step ? `H${px.toFixed(1)}V${py.toFixed(1)}` : `L${px.toFixed(1)},${py.toFixed(1)}`;
      }).join("");
      picture.append(svg("path", { class: "curve", d: line, stroke: colour, "stroke-dasharray": seriesDash(one.index) }));
      points.forEach((point, i) => {
        const [px, py] = at[i];
        if (point.length > 3 && point[3] > point[2]) {
          const [low, high] = [vertical.at(Math.max(point[2], vertical.from)), vertical.at(point[3])];
          picture.append(svg("path", { class: "whisker", d: `M${px},${low}V${high}M${px - 3},${low}h6M${px - 3},${high}h6`, stroke: colour }));
        }
      });
      // On long curves a few marks tell them apart, shifted against those of the others.
      const every = one.marks ? 1 : Math.max(Math.ceil(points.length / 8), 1);
      const shift = one.marks ? 0 : Math.floor((one.index * every) / Math.max(series.length, 1));
      at.forEach(([px, py], i) => {
        if ((i + shift) % every === 0) {
          picture.append(svg("path", { d: markShape(one.index, 4.5), transform: `translate(${px.toFixed(1)} ${py.toFixed(1)})`, ...(one.hollow?.(points[i]) ? { class: "mark hollow", stroke: colour } : { class: "mark", fill: colour }) }));
        }
      });
    });
    const rule = svg("line", { class: "cursor", y1: 10, y2: bottom, x1: 0, x2: 0, visibility: "hidden" });
    picture.append(rule);
    geometry.rule = rule;
    plot.replaceChildren(picture);
    if (cursor !== null) showCursor();
  }

  /** What a curve has at x: its own point there, or the last before it where it is a step. */
  function pointAt(one, at) {
    const exact = one.points.find((point) => point[0] === at);
    if (exact || !one.step) return exact;
    return one.points.findLast((point) => point[0] < at);
  }

  function showCursor() {
    const at = xs[cursor];
    const { horizontal, rule } = geometry;
    rule.setAttribute("x1", horizontal.at(at));
    rule.setAttribute("x2", horizontal.at(at));
    rule.setAttribute("visibility", "visible");
    const parts = geometry.shown.map((one) => {
      const point = pointAt(one, at);
      return point && el("span", { class: "pair" }, seriesKey(one.index), `${one.name} `, el("b", {}, y.format(point[1])), point[4] ? ` (${point[4]})` : "");
    });
    const behind = area && area.points.find((point) => point[0] === at);
    readout.replaceChildren(el("span", { class: "pair" }, el("b", {}, x.format(at))), ...parts.filter(Boolean),
      ...(behind ? [el("span", { class: "pair" }, `${area.name} `, el("b", {}, area.format(behind[1])))] : []));
  }

  function move(to, tell) {
    if (xs.length === 0 || !geometry) return;
    cursor = Math.min(Math.max(to, 0), xs.length - 1);
    showCursor();
    if (tell && moved) moved(xs[cursor]);
  }

  const nearest = (test) => xs.reduce((best, _, i) => (test(i) < test(best) ? i : best), 0);
  plot.addEventListener("keydown", (event) => {
    const now = cursor ?? -1;
    const page = Math.max(Math.round(xs.length / 10), 1);
    const to = { ArrowRight: now + 1, ArrowUp: now + 1, ArrowLeft: now - 1, ArrowDown: now - 1, Home: 0, End: xs.length - 1, PageUp: now + page, PageDown: now - page }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    move(to, true);
  });
  const follow = (event) => {
    const px = event.clientX - plot.getBoundingClientRect().left;
    if (geometry) move(nearest((i) => Math.abs(geometry.horizontal.at(xs[i]) - px)), true);
  };
  plot.addEventListener("pointermove", follow);
  plot.addEventListener("pointerdown", follow);

  const redraw = whenSized(plot, draw);
  const legend = el("div", { class: "legend", role: "group", "aria-label": `Curves of: ${title}` }, series.map((one) => {
    const button = el("button", { type: "button", "aria-pressed": "true", on: { click: () => {
      if (hidden.delete(one.name)) button.setAttribute("aria-pressed", "true");
      else {
        hidden.add(one.name);
        button.setAttribute("aria-pressed", "false");
      }
      redraw();
    } } }, seriesKey(one.index), one.name);
    return button;
  }), area && el("span", { class: "pair" }, el("span", { class: "key area-key", "aria-hidden": "true" }), `${area.name} (right)`));
  const node = el("figure", { class: "chart" },
    el("figcaption", {}, el("strong", {}, title), note && el("span", { class: "quiet" }, ` ${note}`)),
    legend,
    el("div", { class: "y-label quiet" }, y.label),
    plot, readout,
    details("As a table", () => chartTable(title, x, y, series)));
  return { node, moveTo: (at) => move(nearest((i) => Math.abs(xs[i] - at)), false) };
}

/** A chart's figures as a table, for readers who do not see the chart. */
function chartTable(title, x, y, series) {
  const xs = [...new Set(series.flatMap((one) => one.points.map((point) => point[0])))].sort((a, b) => a - b);
  const maps = series.map((one) => new Map(one.points.map((point) => [point[0], point[1]])));
  return table(title, [x.label, ...series.map((one) => one.name)], xs.map((at) => ({
    head: figure(at, x.format(at)),
    cells: maps.map((map) => (map.has(at) ? figure(map.get(at), y.format(map.get(at))) : "–")),
  })));
}
