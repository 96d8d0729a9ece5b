// Two results beside each other: what became of every figure.

const VERDICTS = { worse: "worse", better: "better", same: "same", unclear: "unclear", neither: "" };

/** The figures with one of these verdicts, grouped by what they are of. */
function comparisonTable(caption, data, figures) {
  const lines = unique(figures.map((one) => one.what)).flatMap((what) => [{ group: what }, ...figures.filter((one) => one.what === what).map((one) => ({
    head: [words(one.metric), one.unit ? el("span", { class: "hint" }, one.unit) : null],
    cells: [
      { class: "text", content: one.engine },
      { class: "number", content: figure(one.before, number(one.before)) },
      { class: "number", content: [figure(one.after, number(one.after)), changeBadge(one.before, one.after, one.better === "neither" ? undefined : one.better)] },
      { class: "number quiet", content: typeof one.p === "number" ? figure(one.p, decimal(one.p)) : "" },
      { class: "text", content: VERDICTS[one.verdict] ?? "" },
    ],
  }))]);
  return table(caption, ["", "engine", data.before, data.after, "p", "verdict"], lines, { class: "comparison" });
}

function comparisonDocument(data) {
  const figures = data.figures || [];
  const differs = figures.filter((one) => one.before !== one.after);
  const only = (name, places) => places?.length > 0 && el("p", { class: "quiet" }, `Only in ${name}: ${unique(places.map((one) => one.what)).map((what) => `${unique(places.filter((one) => one.what === what).map((one) => one.engine)).join(", ")} on ${what}`).join("; ")}.`);
  return [
    el("h2", {}, "Changes"),
    el("p", { class: "verdict" }, data.summary || ""),
    (data.notes || []).map((note) => el("p", { class: "note" }, note)),
    ["worse", "better", "unclear", "same", "neither"].map((verdict) => {
      const own = differs.filter((one) => one.verdict === verdict);
      const captions = {
        worse: "Worse", better: "Better", unclear: "Different, but no more than runs of one program are",
        same: `Different by at most ${data.tolerance_percent} %`, neither: "Different, and neither better nor worse",
      };
      return own.length > 0 && comparisonTable(captions[verdict], data, own);
    }),
    figures.length > differs.length && el("p", { class: "quiet" }, `${plural(figures.length - differs.length, "figure")} equal.`),
    only(data.before, data.only_before), only(data.after, data.only_after),
    el("p", { class: "quiet" }, "Counts are exact, so any difference counts. A difference of repeated runs counts where the two-sided Mann-Whitney U test calls it significant at 5 %."),
  ];
}
