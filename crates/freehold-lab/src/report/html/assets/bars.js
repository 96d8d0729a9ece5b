// Bars for a handful of figures that are to be compared: one for each engine, from 0, with whiskers from the least to
// the greatest of the runs. On a logarithmic scale, which has no 0, a dot takes the bar's place.

/** A table whose rows are {name, index, value, low, high, text, cells}: `columns` name the cells after the value. */
function bars({ title, note, columns, rows, log }) {
  const ends = rows.flatMap((row) => [row.value, row.low, row.high]).filter(Number.isFinite);
  const most = Math.max(...ends, 0);
  const above = ends.filter((value) => value > 0);
  const least = above.length > 0 ? Math.min(...above) / 1.5 : 1;
  const place = (value) => {
    if (!(most > 0)) return 0;
    const share = log ? Math.log(Math.max(value, least) / least) / Math.log(most / least) : value / most;
    return Math.min(Math.max(share, 0), 1) * 100;
  };
  const track = (row) => {
    const colour = seriesColour(row.index);
    const at = place(row.value).toFixed(2);
    const parts = [log
      ? el("span", { class: "dot", style: `left: ${at}%; background: ${colour}` })
      : el("span", { class: "bar", style: `width: ${at}%; background: ${colour}` })];
    if (Number.isFinite(row.low) && row.high > row.low) {
      const [low, high] = [place(row.low), place(row.high)];
      parts.push(el("span", { class: "span", style: `left: ${low.toFixed(2)}%; width: ${(high - low).toFixed(2)}%` }));
    }
    return el("span", { class: "track", "aria-hidden": "true" }, parts);
  };
  const node = table([el("strong", {}, title), note && el("span", { class: "quiet" }, " ", note)], ["Engine", ...columns],
    rows.map((row) => ({ head: [el("span", { class: "name" }, row.name), track(row)], cells: row.cells })), { class: "bars" });
  return node;
}
