/* Small helpers of the page: elements, numbers, pictures, downloads.

   Every file is a classic script that adds to the one global `page`. Modules would be tidier, but a
   browser refuses to load them from disk, and the static export is opened from disk.
   Text from outside (names of variables, files, messages) only ever becomes a text node. */
"use strict";

const page = {};

(() => {
  const SVG = "http://www.w3.org/2000/svg";

  /* Set attributes; `on` is a map of listeners, `class` and `text` are what they say. */
  function set(node, attributes) {
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (key === "on") {
        for (const [event, listener] of Object.entries(value))
          node.addEventListener(event, listener);
      } else if (key === "text") {
        node.textContent = value;
      } else if (key === "style") {
        for (const [name, part] of Object.entries(value)) node.style.setProperty(name, part);
      } else if (["value", "checked", "disabled", "open", "selected", "hidden"].includes(key)) {
        node[key] = value;
      } else {
        node.setAttribute(key, value === true ? "" : String(value));
      }
    }
    return node;
  }

  function fill(node, children) {
    for (const child of children.flat(Infinity)) {
      if (child === null || child === undefined || child === false) continue;
      node.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return node;
  }

  /* h("button", {class: "x", on: {click: f}}, "text", other) */
  page.h = (tag, attributes, ...children) =>
    fill(set(document.createElement(tag), attributes), children);
  page.svg = (tag, attributes, ...children) =>
    fill(set(document.createElementNS(SVG, tag), attributes), children);
  page.set = set;
  page.replace = (node, ...children) => {
    node.replaceChildren();
    return fill(node, children);
  };

  /* ---- numbers and words ------------------------------------------------------------------- */
  const MINUS = "\u2212";

  /* Number of decimals that separate values over a range: 3 to 12.58 needs 2. */
  page.decimals = (range) =>
    range > 0 && Number.isFinite(range)
      ? Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(range))))
      : 3;

  page.number = (value, decimals) => {
    if (value === null || value === undefined || Number.isNaN(value)) return "\u2013";
    if (!Number.isFinite(value)) return value > 0 ? "\u221e" : MINUS + "\u221e";
    let text;
    if (decimals !== undefined) text = value.toFixed(decimals);
    else if (value === 0) text = "0";
    else if (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-4) text = value.toExponential(2);
    else text = String(Number(value.toPrecision(4)));
    if (/^-0(\.0*)?$/.test(text)) text = text.slice(1);
    return text.replace("-", MINUS);
  };

  page.signed = (value, decimals) => {
    const text = page.number(value, decimals);
    return value > 0 ? "+" + text : text;
  };

  page.count = (n, one, many) => `${n.toLocaleString("en")} ${n === 1 ? one : many || one + "s"}`;

  /* The range of a variable, and its value as text: a category, or a number with its decimals. */
  page.valueText = (variable, value, withUnit = false) => {
    if (value === null || value === undefined) return "\u2013";
    const categories = (variable && variable.categories) || [];
    if (variable && variable.kind !== "continuous" && categories.length) {
      const code = Math.round(value);
      if (categories[code] !== undefined && Math.abs(value - code) < 1e-6) return categories[code];
    }
    const range = variable ? variable.high - variable.low : 0;
    const text = page.number(value, variable ? page.decimals(range) : undefined);
    return withUnit && variable && variable.unit ? `${text}\u00a0${variable.unit}` : text;
  };

  page.outside = (variable, value) => {
    if (!variable || variable.low === null || variable.low === undefined) return "";
    if (variable.kind !== "continuous") return "";
    if (value >= variable.low && value <= variable.high) return "";
    return (
      `Outside the training range ${page.valueText(variable, variable.low)} to ` +
      `${page.valueText(variable, variable.high, true)}: the picture extrapolates.`
    );
  };

  /* ---- pictures ---------------------------------------------------------------------------- */
  page.decode = (source) =>
    new Promise((resolve, reject) => {
      const image = new Image();
      image.onload = () => resolve(image);
      image.onerror = () => reject(new Error("A picture could not be decoded."));
      image.src = source;
    });

  /* ---- clipboard and downloads ------------------------------------------------------------- */
  page.announce = (text) => {
    const live = document.getElementById("live");
    if (live) live.textContent = text;
  };

  page.copy = async (text, button) => {
    let copied = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = page.h("textarea", { class: "offscreen", "aria-hidden": "true" });
      area.value = text;
      document.body.append(area);
      area.select();
      copied = document.execCommand("copy");
      area.remove();
    }
    const before = button.dataset.label || button.textContent;
    button.dataset.label = before;
    button.textContent = copied ? "Copied" : "Press Ctrl+C";
    page.announce(copied ? "Copied to the clipboard." : "Copying was refused by the browser.");
    setTimeout(() => (button.textContent = before), 1500);
  };

  page.download = (name, href) => {
    const link = page.h("a", { download: name, href });
    document.body.append(link);
    link.click();
    link.remove();
  };

  page.downloadBlob = (name, blob) => {
    const href = URL.createObjectURL(blob);
    page.download(name, href);
    setTimeout(() => URL.revokeObjectURL(href), 10000);
  };

  page.fileName = (text) => text.replace(/[^\w.=+-]+/g, "_").slice(0, 80) || "view";

  /* Run `task` for the latest arguments only: one at a time, those in between are dropped. */
  page.latest = (task) => {
    let running = false;
    let waiting = null;
    return async function call(...args) {
      if (running) {
        waiting = args;
        return;
      }
      running = true;
      try {
        await task(...args);
      } finally {
        running = false;
        if (waiting) {
          const next = waiting;
          waiting = null;
          call(...next);
        }
      }
    };
  };
})();
