// Making elements. Text goes in as text nodes only: nothing in the data can become markup.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    } else {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** An element of HTML; `on` among the attributes holds event handlers. */
function el(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** An element of SVG. */
function svg(name, attributes, ...children) {
  return fill(document.createElementNS(SVG_NAMESPACE, name), attributes, children);
}

let lastId = 0;

/** A name for an element that no other element has. */
function freshId(prefix) {
  lastId += 1;
  return `${prefix}-${lastId}`;
}

/** A labelled list to choose from; calls `chosen` with the value. Options are [value, text] pairs. */
function choice(label, options, value, chosen) {
  const id = freshId("choice");
  const list = el("select", { id, on: { change: () => chosen(list.value) } },
    options.map(([key, text]) => el("option", { value: key, selected: String(key) === String(value) }, text)));
  return el("span", { class: "control" }, el("label", { for: id }, label), list);
}

/** A group of buttons of which one is pressed in; arrow keys move between them, as between radio buttons. */
function radios(label, options, value, chosen) {
  const name = freshId("radio");
  return el("fieldset", { class: "control segmented" },
    el("legend", {}, label),
    el("span", { class: "segments" }, options.map(([key, text]) => {
      const id = freshId("segment");
      return [
        el("input", { type: "radio", id, name, value: key, checked: key === value, on: { change: () => chosen(key) } }),
        el("label", { for: id }, text),
      ];
    })));
}

/** What looks whether an element's width has changed: before printing there is no time to wait for the browser. */
const sized = new Set();

/** Draws again whenever the element's width changes; the first time when it first has one. */
function whenSized(element, draw) {
  let width = 0;
  const look = () => {
    if (!element.isConnected && width > 0) sized.delete(look);
    const now = Math.floor(element.clientWidth);
    if (now > 0 && now !== width) {
      width = now;
      draw(now);
    }
  };
  sized.add(look);
  new ResizeObserver(look).observe(element);
  return () => { if (width > 0) draw(width); };
}
