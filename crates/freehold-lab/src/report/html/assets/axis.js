// Scales and the ticks on them.

/** A scale from data to pixels: {at(value), ticks, from, to}. */
function linearScale(from, to, start, end, room, binary) {
  if (from === to) to = from + 1;
  const step = (binary ? binaryStep : niceStep)((to - from) / Math.max(room, 2));
  const top = Math.ceil(to / step - 1e-9) * step;
  const ticks = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= top + step * 1e-9; i += 1) ticks.push(i * step + 0);
  return { at: (value) => start + ((value - from) / (top - from)) * (end - start), ticks, from, to: top };
}

/** A scale that ends where the data ends, not at the next round number: for time. */
function exactScale(from, to, start, end, room) {
  if (from === to) to = from + 1;
  const step = niceStep((to - from) / Math.max(room, 2));
  const ticks = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + step * 1e-9; i += 1) ticks.push(i * step + 0);
  return { at: (value) => start + ((value - from) / (to - from)) * (end - start), ticks, from, to };
}

/** The power of ten at or below a value, and at or above. */
function powerBelow(value) {
  return 10 ** Math.floor(Math.log10(value) + 1e-9);
}

function powerAbove(value) {
  return 10 ** Math.ceil(Math.log10(value) - 1e-9);
}

/** Logarithmic, over values above 0. `values`, where given, are the ticks, as many of them as there is room for. */
function logScale(from, to, start, end, room, values) {
  if (from === to) {
    from /= 2;
    to *= 2;
  }
  const [low, high] = [Math.log10(from), Math.log10(to)];
  let ticks = values;
  if (!ticks) {
    ticks = [];
    for (let power = Math.floor(low); power <= Math.ceil(high); power += 1) ticks.push(10 ** power);
    // Less than two powers of ten: the twos and fives between them help.
    if (high - low < 2) ticks = ticks.flatMap((tick) => [tick, tick * 2, tick * 5]);
    ticks = ticks.filter((tick) => tick >= from * 0.999 && tick <= to * 1.001);
  }
  const every = Math.ceil(ticks.length / Math.max(room, 2));
  ticks = ticks.filter((_, i) => i % every === 0);
  const at = (value) => start + ((Math.log10(Math.max(value, from)) - low) / (high - low)) * (end - start);
  return { at, ticks, from, to };
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * 0.75);
}

/** For bytes and frames: powers of two. */
function binaryStep(least) {
  return 2 ** Math.ceil(Math.log2(least) - 1e-9);
}
