// Reading and drawing a memory map: a cell for each pageblock. How it is written: "skip run value" triples, the cells
// that changed since the moment before, one text for each of holder, migratetype and free frames.

const MIGRATETYPES = ["unmovable", "movable", "reclaimable", "HIGHATOMIC", "CMA", "isolated"];
const PAGEBLOCK_FRAMES = 512;

function applyPlane(text, cells) {
  if (!text) return;
  const numbers = text.split(" ");
  let at = 0;
  for (let i = 0; i + 2 < numbers.length; i += 3) {
    at += Number(numbers[i]);
    const end = at + Number(numbers[i + 1]);
    cells.fill(Number(numbers[i + 2]), at, end);
    at = end;
  }
}

/** The moments of a map, one after the other; going back starts over, which costs milliseconds. */
function mapReader(map) {
  const zero = () => new Uint32Array(map.cells);
  const frames = zero();
  applyPlane(map.frames, frames);
  let at = -1;
  let planes = null;
  return {
    map,
    frames,
    moment(wanted) {
      if (planes === null || wanted < at) {
        planes = { holder: zero(), migratetype: zero(), free: zero() };
        at = -1;
      }
      while (at < wanted) {
        at += 1;
        for (const name of Object.keys(planes)) applyPlane(map[name][at], planes[name]);
      }
      return planes;
    },
  };
}

/** What the cells are coloured by: {count, of(planes, frames, cell), name(i), colour(i)}; `used` shows fullness besides. */
function colouring(kind, cpus) {
  if (kind === "migratetype") {
    const colours = [1, 2, 4, 3, 6, 0].map((index) => resolved(`--series-${index}`));
    return { count: 6, of: (planes, cell) => planes.migratetype[cell], name: (i) => MIGRATETYPES[i] || `type ${i}`, colour: (i) => colours[i] || colours[5], used: true };
  }
  if (kind === "fullness") {
    const dark = document.documentElement.dataset.theme === "dark";
    const scale = dark ? CIVIDIS : [...CIVIDIS].reverse();
    const names = ["wholly free", "up to a quarter in use", "up to half in use", "up to three quarters in use", "more in use", "full"];
    const of = (planes, cell, frames) => {
      const used = frames[cell] - planes.free[cell];
      if (used <= 0) return 0;
      if (planes.free[cell] === 0) return 5;
      return Math.min(Math.ceil((used / frames[cell]) * 4), 4);
    };
    return { count: 6, of, name: (i) => names[i], colour: (i) => (i === 0 ? null : ramp(scale, 0.12 + (0.88 * (i - 1)) / 4)), used: false };
  }
  const zone = resolved("--zone");
  const few = cpus <= 8;
  // The eight colours of curves, brightest contrasts first; of many CPUs neighbours look alike, the text says which.
  const colours = few ? [2, 1, 4, 3, 6, 5, 7, 0].map((index) => resolved(`--series-${index}`)) : null;
  const colour = (i) => {
    if (i === 0) return zone;
    return few ? colours[(i - 1) % 8] : ramp(CIVIDIS, 0.15 + (0.85 * (i - 1)) / Math.max(cpus - 1, 1));
  };
  return { count: cpus + 1, of: (planes, cell) => planes.holder[cell], name: (i) => (i === 0 ? "the zone" : `CPU ${i - 1}`), colour, used: true, many: !few };
}

/** How many cells a row has, and how large each is, for a width in pixels. */
function mapLayout(cells, width) {
  const tall = Math.max(Math.min(width * 0.85, 400), 220);
  for (let columns = 8; columns <= 1024; columns *= 2) {
    const size = Math.min(Math.floor(width / columns), 26);
    const rows = Math.ceil(cells / columns);
    if (size <= 2 || (size * columns > width * 0.6 && rows * size <= tall)) return { columns, size: Math.max(size, 1), rows };
  }
  return { columns: 1024, size: 1, rows: Math.ceil(cells / 1024) };
}

/** Draws a moment; `marked` is the cell under the cursor, or -1. */
function drawMap(canvas, layout, reader, planes, scheme, marked) {
  const { columns, size, rows } = layout;
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(columns * size * scale);
  canvas.height = Math.round(rows * size * scale);
  canvas.style.width = `${columns * size}px`;
  canvas.style.height = `${rows * size}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const page = resolved("--page");
  const outline = css(resolved("--quiet"));
  const gap = size >= 5 ? 1 : 0;
  const inner = size - gap;
  const colours = Array.from({ length: scheme.count }, (_, i) => scheme.colour(i));
  for (let cell = 0; cell < reader.map.cells; cell += 1) {
    const x = (cell % columns) * size;
    const y = Math.floor(cell / columns) * size;
    const colour = colours[scheme.of(planes, cell, reader.frames)] || null;
    const share = reader.frames[cell] > 0 ? 1 - planes.free[cell] / reader.frames[cell] : 0;
    if (colour === null) {
      context.strokeStyle = outline;
      context.lineWidth = 1;
      if (size >= 5) context.strokeRect(x + 0.5, y + 0.5, inner - 1, inner - 1);
    } else if (scheme.used && inner >= 6) {
      // Filled from below as far as it is in use.
      context.fillStyle = css(mix(page, colour, 0.3));
      context.fillRect(x, y, inner, inner);
      const full = share > 0 ? Math.max(inner * share, 1) : 0;
      context.fillStyle = css(colour);
      context.fillRect(x, y + inner - full, inner, full);
    } else {
      context.fillStyle = css(scheme.used ? mix(page, colour, 0.3 + 0.7 * share) : colour);
      context.fillRect(x, y, inner, inner);
    }
  }
  if (marked >= 0) {
    const x = (marked % columns) * size;
    const y = Math.floor(marked / columns) * size;
    context.lineWidth = 2;
    context.strokeStyle = css(page);
    context.strokeRect(x - 2, y - 2, size + 3, size + 3);
    context.strokeStyle = css(resolved("--ink"));
    context.strokeRect(x - 1, y - 1, size + 1, size + 1);
  }
}
