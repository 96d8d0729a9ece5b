// The page: one tab for each command whose JSON is in it, a list to choose from where there are several of a kind.

/** Of each kind: the tab, what draws a document, what to call one, the command that writes them. */
const KINDS = {
  replay: ["Replay", replayDocument, (data) => data.trace?.name, "replay"],
  bench: ["Bench", benchDocument, () => null, "bench"],
  fragmentation: ["Fragmentation", fragmentationDocument, (data) => unique(data.cells.map((cell) => cell.workload)).join(", "), "contiguity"],
  simulate: ["Simulate", simulateDocument, (data) => unique((data.rows || []).map((row) => row.workload)).join(", "), "simulate"],
};

/** The documents of a kind: the only one, or a list and the one chosen. */
function kindView(kind, documents) {
  const [, show, nameOf] = KINDS[kind];
  const box = el("div", {});
  const draw = (index) => box.replaceChildren(...[show(documents[index].data)].flat(Infinity).filter(Boolean));
  const index = stateNumber(kind, documents.length - 1, 0);
  draw(index);
  if (documents.length === 1) return box;
  const names = documents.map((document, i) => {
    const name = nameOf(document.data);
    return [i, name ? `${name} (${document.source})` : document.source];
  });
  return el("div", {},
    el("div", { class: "controls" }, choice(kind === "replay" ? "Trace" : "Run", names, index, (value) => {
      remember(kind, value);
      redrawOnTheme.clear();
      draw(Number(value));
    })),
    box);
}

function about(data) {
  const terms = [
    ["Event", "A row of a trace: an allocation, a free, or what the recording kernel said of its own refills, drains and fallbacks."],
    ["Replayed event", "An allocation or a free that each engine was asked for, including allocations of frames that were in use before recording began. Figures per 1,000 events are of the events that the engine carried out."],
    ["Refill, drain", "A refill moves frames from the zone to a CPU, a drain moves them back."],
    ["Pageblock", "512 neighbouring frames, 2 MiB. In pcp-buddy a CPU can own a whole one; in freehold a CPU leases words of 64 frames of it, and keeps up to two whole ones in hand; in the other designs the zone has them all."],
    ["Zone lock", "The one lock of a zone's free lists. Work is counted in elementary steps done while it is held: a list link or unlink, a split or merge, a list looked at, a bitmap word, a block moved."],
    ["Shared write", "A write to memory that all CPUs of a zone write: what a design without a zone lock pays in its place."],
    ["Frees outside the CPU’s own lists", "Frees that the freeing CPU does not keep for itself: in pcp-buddy the frame goes to the list of the CPU that owns its block, in freehold into a word that the CPU has not leased."],
    ["Migratetype", "What kind of allocation a pageblock is meant for, so that frames that never move do not end up everywhere."],
    ["Unusable-free-space index", "The share of free memory that cannot serve a request of that order (Gorman and Whitcroft, 2006): 0 when all of it can, 1 when none can."],
    ["Median, least, greatest", "Of the runs of a benchmark, in which the engines took turns. A star marks a difference that is significant by the test that the command names."],
    ["RMW", "One uncontended atomic read-modify-write on the machine measured: the unit in which machines can be compared."],
  ];
  return el("div", {},
    el("h2", {}, "About this report"),
    table("Where the figures come from", ["File", "Command", "What"], data.documents.map((document) => ({
      head: document.source, cells: [`freehold ${KINDS[document.kind][3]}`, KINDS[document.kind][2](document.data) || "–"],
    }))),
    el("h3", {}, "How to read them"),
    el("dl", { class: "terms" }, terms.flatMap(([term, text]) => [el("dt", {}, term), el("dd", {}, text)])),
    el("h3", {}, "Keys"),
    el("p", {}, "Tab goes from one control to the next. On the tabs, the slider, a chart, a grid or a map the arrow keys move; Home and End go to the ends. What is shown is kept in the address, so a place in this file can be sent to somebody."),
    el("p", { class: "quiet" }, `Made by freehold report ${data.version}. This file fetches nothing and sends nothing.`));
}

/** Goes to a place by its id, opened where it is something that opens. */
function reveal(id) {
  const place = id && document.getElementById(id);
  if (!place) return;
  if (place.tagName === "DETAILS" && !place.open) {
    place.open = true;
    // What is in it takes room at once, so that its end can come into view.
    place.dispatchEvent(new Event("toggle"));
  }
  place.scrollIntoView();
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  benchmarksKnown = data.benchmarks || {};
  document.getElementById("top").append(el("h1", {}, data.title), themeChoice());
  const kinds = Object.keys(KINDS).filter((kind) => data.documents.some((one) => one.kind === kind));
  const items = kinds.map((kind) => {
    const own = data.documents.filter((one) => one.kind === kind);
    return { id: kind, label: KINDS[kind][0], content: () => kindView(kind, own) };
  });
  items.push({ id: "about", label: "About", content: () => about(data) });
  document.getElementById("main").append(
    ...data.notes.map((note) => el("p", { class: "note" }, note)),
    ...tabs("What was run", items, state.get("view") || kinds[0], (view) => remember("view", view)));
  preparePaper();
  requestAnimationFrame(() => requestAnimationFrame(() => reveal(state.get("at"))));
  // A link to another place of this report, put into the same window.
  addEventListener("hashchange", () => reveal(new URLSearchParams(location.hash.slice(1)).get("at")));
  document.documentElement.dataset.ready = "yes";
}

start();
