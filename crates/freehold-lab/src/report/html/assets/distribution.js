// Distributions: how many holds did so much work, how many operations took so long. From lists of buckets.

/**
 * A chart of distributions. `series` are {name, index, buckets: [[from, to, count], ...]} by rising values.
 *   as "share"  the share of all, in buckets by powers of two, which every engine's own buckets fit in
 *   as "tail"   the share of all that is x or more: where a curve ends at the right is the worst case
 */
function distribution({ title, what, unit, format, series }) {
  const box = el("div", {});
  const total = (buckets) => buckets.reduce((sum, bucket) => sum + bucket[2], 0);
  const draw = (as) => {
    const percent = (share) => (share >= 0.001 || share === 0 ? `${(share * 100).toFixed(2)}%` : `${(share * 100).toExponential(1)}%`);
    // Logarithms have no 0: what is 0 stands where 1/2 would.
    const place = (value) => (value <= 0 ? 0.5 : value);
    const axis = (value) => (value < 1 && unit === "steps" ? "0" : short(value));
    const curves = series.filter((one) => one.buckets.length > 0).map((one) => {
      const all = total(one.buckets);
      let points;
      if (as === "share") {
        const byPower = new Map();
        one.buckets.forEach(([from, , count]) => {
          const start = from < 1 ? 0 : 2 ** Math.floor(Math.log2(from));
          byPower.set(start, (byPower.get(start) || 0) + count);
        });
        points = [...byPower].sort((a, b) => a[0] - b[0]).map(([start, count]) => [place(start), count / all]);
      } else {
        let left = all;
        points = one.buckets.map(([from, , count]) => {
          const point = [place(from), left / all];
          left -= count;
          return point;
        });
        const [, longest, count] = one.buckets[one.buckets.length - 1];
        if (place(longest) > points[points.length - 1][0]) points.push([place(longest), count / all]);
      }
      return { name: one.name, index: one.index, points, marks: as === "share", step: as !== "share" };
    });
    const heading = as === "share" ? `${title}: share of ${what}` : `${title}: share of ${what} of at least so many ${unit}`;
    const span = (value) => value < 1 && unit === "steps" ? "0" : as === "share" && value >= 2 && unit === "steps" ? `${thousands(value)} to ${thousands(value * 2 - 1)}` : format(value);
    box.replaceChildren(lineChart({
      title: heading,
      note: as === "share" ? "in buckets of powers of two" : "a curve ends at the longest",
      x: { label: unit, log: true, format: (value) => `${span(value)}${unit === "steps" ? ` ${unit}` : ""}`, axisFormat: axis },
      y: { label: `share of ${what}`, log: as === "tail", format: percent, axisFormat: (share) => `${share >= 1e-7 || share === 0 ? Number((share * 100).toPrecision(3)) : (share * 100).toExponential(0)}%` },
      series: curves,
    }).node);
  };
  draw("tail");
  return el("div", {},
    el("div", { class: "controls" }, radios("Show", [["tail", "tail"], ["share", "histogram"]], "tail", draw)),
    box);
}
