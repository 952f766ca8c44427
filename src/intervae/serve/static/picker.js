/* Which picture: an index of the test split, thumbnails to browse, or an upload. */
"use strict";

(() => {
  const { h } = page;
  const PAGE = 24; // thumbnails at a time
  const LARGEST = 8 * 2 ** 20; // bytes of an upload

  page.upload = null; // {png, name, notes, run, file, number}
  let uploads = 0;

  page.pictureOf = (state, run) => {
    if (state.picture === "upload" && page.upload && page.upload.run === run.id) {
      return { png: page.upload.png };
    }
    return { index: state.picture === "upload" ? 0 : state.picture };
  };
  page.pictureText = (state, noun = "test picture") =>
    state.picture === "upload"
      ? page.upload
        ? page.upload.name
        : "upload"
      : `${noun} ${state.picture}`;

  const base64 = (buffer) => {
    const bytes = new Uint8Array(buffer);
    let text = "";
    for (let i = 0; i < bytes.length; i += 0x8000)
      text += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
    return btoa(text);
  };

  /* Send a file to the server, which returns it at the model's size; nothing is stored. */
  page.readUpload = async (run, file) => {
    if (file.size > LARGEST) {
      throw new page.PageError(
        `${file.name} has ${(file.size / 2 ** 20).toFixed(1)} MiB; at most 8 MiB are read.`,
      );
    }
    const answer = await page.api.upload(run.id, base64(await file.arrayBuffer()));
    uploads += 1;
    const { png, notes } = answer;
    return { png, notes: notes || [], name: file.name, run: run.id, file, number: uploads };
  };

  /* Thumbnails of the test split. onChoose(index); chosen() -> index. */
  page.thumbnails = (run, onChoose, chosen) => {
    const grid = h("div", { class: "thumbs", role: "group", "aria-label": "Test pictures" });
    const where = h("span", { class: "small faint numeric push" });
    const message = h("p", { class: "small faint" });
    const step = (direction) => show(start + direction * PAGE);
    const before = h("button", { text: "Earlier", on: { click: () => step(-1) } });
    const after = h("button", { text: "Later", on: { click: () => step(1) } });
    const total = () => (page.api.exported ? page.api.indices(run.id).length : run.pictures.count);
    let start = -1;

    async function show(from) {
      start = Math.max(0, Math.min(from, Math.max(0, total() - 1)));
      start -= start % PAGE;
      before.disabled = start === 0;
      after.disabled = start + PAGE >= total();
      try {
        const answer = await page.api.pictures(run.id, start, PAGE);
        message.textContent = answer.error || "";
        page.replace(
          grid,
          answer.pictures.map((picture) =>
            h(
              "button",
              {
                type: "button",
                "data-index": picture.index,
                "aria-label": `Test picture ${picture.index}`,
                on: { click: () => onChoose(picture.index) },
              },
              h("img", { class: "picture", src: page.png(picture.png), alt: "" }),
              picture.index,
            ),
          ),
        );
        where.textContent = `${start} to ${Math.min(start + PAGE, total()) - 1} of ${total().toLocaleString("en")}`;
        mark();
      } catch (error) {
        message.textContent = error.message;
      }
    }
    function mark() {
      for (const button of grid.children) {
        button.setAttribute("aria-pressed", String(Number(button.dataset.index) === chosen()));
      }
    }
    const element = h(
      "div",
      { class: "browse", hidden: true },
      grid,
      h("div", { class: "row" }, before, after, where),
      message,
    );
    return {
      element,
      mark,
      open() {
        element.hidden = false;
        const index = page.api.exported ? page.api.indices(run.id).indexOf(chosen()) : chosen();
        show(Math.max(0, Number(index) || 0));
      },
      close: () => (element.hidden = true),
    };
  };

  /* The row above the pictures. Returns {element, update}. */
  page.picker = (run, noun = "picture") => {
    const count = run.pictures.count;
    const indices = page.api.exported ? page.api.indices(run.id) : null;
    const canUpload = run.capabilities.includes("upload") && !page.api.exported;
    const choose = (index) => page.change({ picture: index });
    const chosen = () => page.state.picture;
    const step = (direction) => {
      if (indices) {
        const k = indices.indexOf(chosen());
        choose(indices[(k + direction + indices.length) % indices.length]);
      } else {
        choose(((Number(chosen()) || 0) + direction + count) % count);
      }
    };
    const field = h("input", {
      type: "number",
      min: 0,
      max: count - 1,
      step: 1,
      "aria-label": `Index of the test ${noun}`,
      on: {
        change: () => {
          const index = Math.round(Number(field.value));
          if (field.value.trim() !== "" && index >= 0 && index < count) choose(index);
          else field.value = chosen();
        },
      },
    });
    const thumbnails = page.thumbnails(run, choose, chosen);
    const browse = h("button", {
      text: "Browse",
      "aria-expanded": "false",
      on: {
        click: () => {
          const open = browse.getAttribute("aria-expanded") !== "true";
          browse.setAttribute("aria-expanded", String(open));
          if (open) thumbnails.open();
          else thumbnails.close();
        },
      },
    });
    const file = h("input", {
      type: "file",
      accept: "image/png,image/jpeg,image/webp,image/bmp",
      class: "offscreen",
      tabindex: -1,
      "aria-label": "Picture file",
      on: { change: () => file.files[0] && take(file.files[0]) },
    });
    const upload = h("button", { text: "Upload\u2026", on: { click: () => file.click() } });
    const drop = h("div", {
      class: "drop",
      text: `Drop a picture anywhere on the page, or use Upload. It is read in memory and not stored.`,
    });
    const message = h("p", { class: "notice warn", role: "status", hidden: true });

    async function take(chosenFile) {
      try {
        page.upload = await page.readUpload(run, chosenFile);
        message.hidden = !page.upload.notes.length;
        message.textContent = page.upload.notes.join(" ");
        page.change({ picture: "upload", upload: undefined });
      } catch (error) {
        message.hidden = false;
        message.textContent = error.message;
      }
      file.value = "";
    }
    page.onDrop = canUpload ? take : null;

    const row = h(
      "div",
      { class: "row" },
      h("h2", { text: `Test ${noun}` }),
      indices ? null : field,
      indices
        ? null
        : h("span", { class: "small faint", text: `of ${count.toLocaleString("en")}` }),
      h("button", {
        class: "icon",
        "aria-label": `Previous ${noun}`,
        text: "\u2039",
        on: { click: () => step(-1) },
      }),
      h("button", {
        class: "icon",
        "aria-label": `Next ${noun}`,
        text: "\u203a",
        on: { click: () => step(1) },
      }),
      indices
        ? null
        : h("button", {
            text: "Random",
            on: { click: () => choose(Math.floor(Math.random() * count)) },
          }),
      browse,
    );
    const name = h("span", { class: "small" });
    const back = h("button", {
      class: "plain",
      text: "Back to the test pictures",
      on: { click: () => choose(0) },
    });
    const own = h(
      "div",
      { class: "row", hidden: true },
      h("h2", { text: "Your picture" }),
      name,
      back,
    );
    const element = h(
      "section",
      { class: "card choice", "aria-label": `Choice of the ${noun}` },
      h(
        "div",
        { class: "row" },
        count ? row : h("h2", { text: "Your picture" }),
        own,
        canUpload ? h("div", { class: "push" }, upload, file) : null,
      ),
      run.pictures.error
        ? h(
            "p",
            { class: "notice warn" },
            h("b", { text: "There are no test pictures." }),
            run.pictures.error,
            canUpload ? " Uploads still work." : "",
          )
        : null,
      message,
      thumbnails.element,
      canUpload && !count ? drop : null,
    );

    return {
      element,
      update(state) {
        const isUpload = state.picture === "upload" && page.upload;
        field.value = isUpload ? "" : state.picture;
        row.hidden = Boolean(isUpload);
        own.hidden = !isUpload;
        name.textContent = isUpload ? page.upload.name : "";
        back.hidden = !count;
        thumbnails.mark();
      },
    };
  };

  /* Files dropped anywhere on the page go to the picker that is shown. */
  page.startDrops = () => {
    const isFile = (event) => [...(event.dataTransfer?.types || [])].includes("Files");
    window.addEventListener("dragover", (event) => {
      if (!isFile(event)) return;
      event.preventDefault();
      document.body.classList.toggle("dragging", Boolean(page.onDrop));
    });
    window.addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) document.body.classList.remove("dragging");
    });
    window.addEventListener("drop", (event) => {
      document.body.classList.remove("dragging");
      if (!isFile(event)) return;
      event.preventDefault();
      if (event.dataTransfer.files[0]) page.onDrop?.(event.dataTransfer.files[0]);
    });
  };
})();
