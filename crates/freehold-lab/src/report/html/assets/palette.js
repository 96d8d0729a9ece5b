// Colours by number. The first five are those of Okabe and Ito (2008) made dark, or light, enough to stand out by 3 to 1
// from the page; nothing is told by colour alone: curves have marks of their own shape, cells a line of text.

const SERIES_COLOURS = 8;

/** The place of each engine among the series: an engine's own, a kernel's by its version, or the next that is free. */
function engineSeries(names) {
  const taken = new Set();
  const own = names.map((name) => {
    const place = /^\d+\.\d+$/.test(name) ? KERNEL_SERIES : OWN_SERIES[name];
    if (place === undefined || taken.has(place)) return undefined;
    taken.add(place);
    return place;
  });
  const free = [5, 6, 7, 0, 1, 2, 3, 4].filter((place) => !taken.has(place));
  // Beyond the eighth colours come again, with dashes.
  return own.map((place, at) => place ?? free.shift() ?? at + SERIES_COLOURS);
}

/** The colour of series number `index`, for a style. */
function seriesColour(index) {
  return `var(--series-${index % SERIES_COLOURS})`;
}

/** The dashes of series number `index`: colours come again after the eighth. */
function seriesDash(index) {
  return ["", "7 4", "2 3", "9 3 2 3"][Math.floor(index / SERIES_COLOURS) % 4];
}

/** The outline of a mark around 0, 0, `r` wide to each side; a different one for each of eight series. */
function markShape(index, r) {
  const d = r * 0.75;
  return [
    `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`,
    `M${-d},${-d}h${2 * d}v${2 * d}h${-2 * d}z`,
    `M0,${-r}L${r},${d}L${-r},${d}z`,
    `M0,${-r}L${r},0L0,${r}L${-r},0z`,
    `M0,${r}L${r},${-d}L${-r},${-d}z`,
    `M${-d / 2},${-r}h${d}v${r - d / 2}h${r - d / 2}v${d}h${-(r - d / 2)}v${r - d / 2}h${-d}v${-(r - d / 2)}h${-(r - d / 2)}v${-d}h${r - d / 2}z`,
    `M${-r},${-d}L0,0L${-r},${d}zM${r},${-d}L0,0L${r},${d}z`,
    `M0,${-r}L${r},${-r / 4}L${d},${r}L${-d},${r}L${-r},${-r / 4}z`,
  ][index % SERIES_COLOURS];
}

/** The key of a series: a line with its mark. */
function seriesKey(index) {
  return svg("svg", { class: "key", width: 26, height: 12, viewBox: "0 0 26 12", "aria-hidden": "true" },
    svg("line", { x1: 0, x2: 26, y1: 6, y2: 6, stroke: seriesColour(index), "stroke-width": 2, "stroke-dasharray": seriesDash(index) }),
    svg("path", { d: markShape(index, 4.5), transform: "translate(13 6)", fill: seriesColour(index) }));
}

/** A colour of the style sheet as red, green and blue, for a canvas. */
function resolved(name) {
  const probe = el("span", { style: `color: var(${name}); display: none` });
  document.body.append(probe);
  const rgb = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  probe.remove();
  return rgb;
}

function mix(a, b, share) {
  return a.map((part, i) => Math.round(part + (b[i] - part) * share));
}

function css(rgb) {
  return `rgb(${rgb.join(",")})`;
}

// Cividis (Nuñez, Anderton and Renslow, 2018) in seven steps: rises in brightness, the same to nearly every eye.
const CIVIDIS = [[0, 34, 78], [42, 63, 109], [87, 93, 109], [123, 122, 120], [165, 154, 107], [209, 189, 81], [254, 232, 56]];

/** A colour from a scale, `share` from 0 to 1. */
function ramp(scale, share) {
  const at = Math.min(Math.max(share, 0), 1) * (scale.length - 1);
  const low = Math.min(Math.floor(at), scale.length - 2);
  return mix(scale[low], scale[low + 1], at - low);
}
