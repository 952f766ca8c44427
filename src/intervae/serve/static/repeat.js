/* What repeats the view: the lines of code, a link, and downloads as PNG and JSON. */
"use strict";

(() => {
  const { h } = page;

  /* Returns {element, update({code, name, figures, json})}; figures: [{title, source}]. */
  page.repeatCard = (title = "Repeat this view") => {
    const python = h("pre", { "data-code": "python", tabindex: 0, "aria-label": "Python" });
    const cli = h("pre", { "data-code": "cli", tabindex: 0, "aria-label": "Command line" });
    let view = null;
    const copyButton = (block, label) => {
      const button = h("button", {
        text: "Copy",
        "aria-label": `Copy the ${label}`,
        on: { click: () => page.copy(block.textContent, button) },
      });
      return button;
    };
    const link = h("button", {
      text: "Copy link",
      on: { click: () => page.copy(location.href, link) },
    });
    const png = h("button", {
      text: "PNG",
      "aria-label": "Download the pictures as PNG",
      on: { click: () => saveFigures(view) },
    });
    const json = h("button", {
      text: "JSON",
      "aria-label": "Download the answer as JSON",
      on: {
        click: () =>
          page.downloadBlob(
            `${page.fileName(view.name)}.json`,
            new Blob([JSON.stringify(view.json, null, 1)], { type: "application/json" }),
          ),
      },
    });
    const cliBox = h(
      "div",
      {},
      h("p", { class: "code-label", text: "Command line" }),
      h("div", { class: "code" }, cli, copyButton(cli, "command")),
    );
    const element = h(
      "section",
      { class: "card", "aria-label": title },
      h(
        "header",
        {},
        h("h2", { text: title }),
        h(
          "div",
          { class: "row push" },
          link,
          h("span", { class: "small faint", text: "Download" }),
          png,
          json,
        ),
      ),
      h("p", { class: "code-label", text: "Python" }),
      h("div", { class: "code" }, python, copyButton(python, "Python code")),
      cliBox,
    );
    element.hidden = true;
    return {
      element,
      update(next) {
        view = next;
        element.hidden = false;
        python.textContent = next.code?.python || "";
        cli.textContent = next.code?.cli || "";
        cliBox.hidden = !next.code?.cli;
        link.hidden = location.protocol === "about:";
      },
    };
  };

  const CELL = 256;
  const TOP = 34;
  const GAP = 16;

  /* Draw titled pictures side by side and save them; enlarged without smoothing. */
  async function saveFigures({ name, figures }) {
    const shown = figures.filter((figure) => figure.source);
    const images = await Promise.all(shown.map((figure) => page.decode(figure.source)));
    const columns = Math.min(shown.length, 8);
    const rows = Math.ceil(shown.length / columns);
    const canvas = h("canvas", {
      width: columns * (CELL + GAP) + GAP,
      height: rows * (CELL + TOP) + GAP,
    });
    const context = canvas.getContext("2d");
    context.fillStyle = "#ffffff";
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.imageSmoothingEnabled = false;
    context.fillStyle = "#1a1f24";
    context.font = "15px system-ui, sans-serif";
    images.forEach((image, k) => {
      const x = GAP + (k % columns) * (CELL + GAP);
      const y = Math.floor(k / columns) * (CELL + TOP);
      context.fillText(shown[k].title, x, y + 23, CELL);
      const scale = CELL / Math.max(image.naturalWidth, image.naturalHeight);
      context.drawImage(image, x, y + TOP, image.naturalWidth * scale, image.naturalHeight * scale);
    });
    canvas.toBlob((blob) => page.downloadBlob(`${page.fileName(name)}.png`, blob), "image/png");
  }
})();
