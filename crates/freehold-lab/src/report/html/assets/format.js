// Numbers and names as people read them, the same way the command's own tables print them.

/** A count with separators. */
function thousands(n) {
  return Math.round(n).toLocaleString("en-US");
}

/** As many decimals as help: three below 10, one below 1000, none above, and none of 0, which is exact. */
function decimal(x) {
  const size = Math.abs(x);
  if (size === 0) return "0";
  if (size < 0.001) return x.toExponential(2);
  if (size < 10) return x.toFixed(3);
  if (size < 1000) return x.toFixed(1);
  return thousands(x);
}

/** A whole number as it is, any other with the decimals that help. */
function number(x) {
  return Number.isInteger(x) ? thousands(x) : decimal(x);
}

/** Short, for the labels of an axis. */
function short(x) {
  const size = Math.abs(x);
  if (size === 0) return "0";
  for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit) return `${trim((x / unit).toPrecision(3))}${name}`;
  }
  if (size < 0.001) return x.toExponential(0);
  return trim(x.toPrecision(3));
}

function trim(text) {
  return text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text;
}

function percentOf(share) {
  return `${(share * 100).toFixed(2)}%`;
}

function duration(ns) {
  if (ns < 1e3) return `${trim(ns.toPrecision(4))} ns`;
  if (ns < 1e6) return `${(ns / 1e3).toFixed(1)} µs`;
  if (ns < 1e9) return `${(ns / 1e6).toFixed(1)} ms`;
  return `${(ns / 1e9).toFixed(1)} s`;
}

/** A length of time for an axis: no decimals that say nothing. */
function shortDuration(ns) {
  return ns === 0 ? "0" : duration(ns).replace(/\.0 /, " ");
}

/** Bytes in powers of 1024. */
function bytes(n) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (n >= 1024 && unit < names.length - 1) {
    n /= 1024;
    unit += 1;
  }
  return `${n >= 100 || Number.isInteger(n) ? Math.round(n).toLocaleString("en-US") : n.toFixed(1)} ${names[unit]}`;
}

const FRAME_BYTES = 4096;

/** How much more `value` is than `base`; nothing where there is nothing to compare with. */
function change(base, value) {
  if (base === value) return "0.0%";
  if (!base || !Number.isFinite(base) || !Number.isFinite(value)) return null;
  const percent = ((value - base) / Math.abs(base)) * 100;
  return signed(percent, value / base);
}

/** A percentage with its sign; beyond a thousand a factor says more. */
function signed(percent, factor = 1 + percent / 100) {
  if (percent >= 1000) return `×${thousands(factor)}`;
  return `${percent < 0 ? "−" : "+"}${Math.abs(percent).toFixed(1)}%`;
}

function plural(n, what) {
  return `${thousands(n)} ${what}${n === 1 ? "" : "s"}`;
}

/** A field's name as words: zone_lock_wait_share becomes "zone lock wait share". */
function words(name) {
  return name.replace(/_bytes$/, "").replace(/_/g, " ").replace(/\bpcp\b/g, "PCP").replace(/\bcpus\b/g, "CPUs");
}
