/* Start: runs are listed, the view of the address is shown, the connection is watched. */
"use strict";

(() => {
  const { h, svg } = page;
  const POLL = 300; // milliseconds between two looks at runs that load
  const ORDER = ["whatif", "clips", "actions", "findings", "latents", "compare"];

  const $ = (id) => document.getElementById(id);
  let runs = [];
  let resultCount = 0;
  let shown = { key: "", view: null };

  /* ---- connection -------------------------------------------------------------------------- */
  const lostNotice = h(
    "p",
    { class: "notice bad", "data-notice": "lost" },
    h("b", { text: "The connection to the server is lost." }),
    "Is `intervae serve` still running? The page goes on by itself as soon as it answers.",
  );
  const busyNotice = h("p", {
    class: "notice warn",
    "data-notice": "busy",
    text: "The server is busy; asking again\u2026",
  });
  let lost = false;
  page.connection = {
    lost() {
      if (lost || page.api.exported) return;
      lost = true;
      $("notices").prepend(lostNotice);
      const look = async () => {
        if (await page.api.alive().catch(() => false)) {
          page.connection.found();
          start(); // the server may be a new one, with other runs
        } else {
          setTimeout(look, 1500);
        }
      };
      setTimeout(look, 1000);
    },
    found() {
      lost = false;
      lostNotice.remove();
    },
    busy(yes) {
      if (!yes) busyNotice.remove();
      else if (!busyNotice.isConnected) $("notices").prepend(busyNotice);
    },
  };

  /* ---- frame ------------------------------------------------------------------------------- */
  const ready = () => runs.filter((run) => run.state === "ready");
  const currentRun = () => ready().find((run) => run.id === page.state.run) || ready()[0];
  const viewsOf = (run) => ORDER.filter((name) => page.views[name].available(run, runs));

  function drawBar(run, name) {
    const tabs = run ? viewsOf(run).map((each) => [each, page.views[each].label]) : [];
    if (resultCount) tabs.push(["results", "Results"]);
    page.replace(
      $("tabs"),
      tabs.map(([each, label]) =>
        h("a", {
          href: page.formatState({ ...page.state, view: each }),
          text: label,
          "aria-current": each === name ? "page" : null,
          on: {
            click: (event) => {
              event.preventDefault();
              page.change({ view: each });
            },
          },
        }),
      ),
    );
    const select = $("run");
    const list = ready();
    $("run-label").hidden = !list.length;
    if (select.dataset.ids !== list.map((each) => each.id).join()) {
      select.dataset.ids = list.map((each) => each.id).join();
      page.replace(
        select,
        list.map((each) => h("option", { value: each.id, text: `${each.name} (${each.model})` })),
      );
    }
    if (run) select.value = run.id;
  }

  function drawNotices() {
    const failed = runs.filter((run) => run.state === "failed");
    const loading = runs.filter((run) => run.state === "loading");
    for (const old of $("notices").querySelectorAll("[data-run]")) {
      if (!(said && old.dataset.run === "once")) old.remove();
    }
    said = false;
    for (const run of failed) {
      $("notices").append(
        h(
          "p",
          { class: "notice bad", "data-run": run.id },
          h("b", { text: `${run.folder} could not be opened.` }),
          run.error || "",
        ),
      );
    }
    if (loading.length && ready().length) {
      $("notices").append(
        h("p", {
          class: "notice",
          "data-run": "loading",
          text: `Loading ${loading.map((run) => run.name).join(", ")}\u2026`,
        }),
      );
    }
  }

  /* A notice until the next change of the view. */
  function say(text) {
    $("notices").append(h("p", { class: "notice", "data-run": "once", text }));
    said = true;
  }
  let said = false;

  /* Another run may have pictures of another size: it reads the file again. */
  async function readUploadFor(run) {
    const { file } = page.upload;
    if (page.upload.reading === run.id) return;
    page.upload.reading = run.id;
    try {
      page.upload = await page.readUpload(run, file);
      render();
    } catch (error) {
      page.change({ picture: 0 }, { push: false });
      say(error.message);
    }
  }

  const empty = (title, text) => h("div", { class: "empty" }, h("b", { text: title }), text);

  /* A state that cannot be shown is replaced by one that can. */
  function corrected(run) {
    const state = page.state;
    const changes = {};
    if (state.picture === "upload" && !page.upload) {
      changes.picture = 0;
      say("This link shows an uploaded picture, which is not stored. Upload it again.");
    }
    if (state.picture === "upload" && page.upload && page.upload.run !== run.id) {
      if (!run.capabilities.includes("upload")) {
        changes.picture = 0;
        say(`${run.name} reads no uploads, so a test picture is shown.`);
      }
    }
    if (
      typeof state.picture === "number" &&
      run.pictures.count &&
      state.picture >= run.pictures.count &&
      !page.api.exported
    )
      changes.picture = 0;
    if (
      page.api.exported &&
      page.api.indices(run.id).length &&
      !page.api.indices(run.id).includes(state.picture)
    ) {
      [changes.picture] = page.api.indices(run.id);
    }
    const names = new Set(run.variables.map((variable) => variable.name));
    if (Object.keys(state.do).some((name) => !names.has(name))) {
      changes.do = Object.fromEntries(Object.entries(state.do).filter(([name]) => names.has(name)));
    }
    if (page.api.exported) {
      const snapped = Object.fromEntries(
        Object.entries(changes.do || state.do)
          .slice(0, 1)
          .map(([name, value]) => [name, page.api.snap(run.id, name, value.add ?? value)]),
      );
      if (JSON.stringify(snapped) !== JSON.stringify(state.do)) changes.do = snapped;
    }
    return changes;
  }

  function render() {
    const run = currentRun();
    const wanted = page.state.view;
    const loadingWanted = runs.some(
      (each) => each.id === page.state.run && each.state === "loading",
    );
    drawNotices();
    if ((!run || loadingWanted) && !(wanted === "results" && resultCount)) {
      drawBar(null, "");
      const loading = runs.some((run_) => run_.state === "loading");
      shown = { key: "", view: null };
      page.replace(
        $("view"),
        loading
          ? h("p", { class: "empty", text: "Loading the model\u2026" })
          : runs.length
            ? empty("No run could be opened.", "The reasons are above.")
            : empty("There is no run to show.", "Start the page with `intervae serve RUN`."),
      );
      return;
    }
    const names = run ? viewsOf(run) : [];
    const name =
      wanted === "results" && resultCount ? "results" : names.includes(wanted) ? wanted : names[0];
    drawBar(run, name);
    document.title =
      run && name !== "results" ? `${run.name} \u2013 intervae` : "Results \u2013 intervae";
    if (!name) {
      page.replace(
        $("view"),
        empty(
          `${run.model} has nothing to show here.`,
          "It answers none of the questions of this page.",
        ),
      );
      return;
    }
    if (name !== "results") {
      const changes = corrected(run);
      if (Object.keys(changes).length) {
        page.change(changes, { push: false });
        return;
      }
      if (page.state.picture === "upload" && page.upload.run !== run.id) {
        readUploadFor(run);
        return;
      }
    }
    const key =
      name === "results"
        ? "results"
        : `${name} ${run.id} ${name === "compare" ? ready().length : ""}`;
    if (key !== shown.key) {
      page.onDrop = null;
      shown = {
        key,
        view: name === "results" ? page.resultsView() : page.views[name].create(run, runs),
      };
      page.replace($("view"), run && name !== "results" ? intro(run) : null, shown.view.element);
    }
    shown.view.update(page.state);
  }

  function intro(run) {
    return h(
      "div",
      { class: "intro" },
      h("h1", { text: run.name }),
      h("p", { class: "faint", text: run.title || run.model }),
      h(
        "p",
        { class: "small faint" },
        [
          run.pictures.data && `data ${run.pictures.data}`,
          `${run.image.height} \u00d7 ${run.image.width} px`,
          run.seed !== null && run.seed !== undefined && `seed ${run.seed}`,
          run.folder,
        ]
          .filter(Boolean)
          .map((text) => h("span", { text })),
      ),
      (run.notes || []).map((note) => h("p", { class: "notice", text: note })),
    );
  }

  /* ---- token and start --------------------------------------------------------------------- */
  function askForToken(text) {
    const field = h("input", {
      type: "text",
      "aria-label": "Address or token",
      autocomplete: "off",
      spellcheck: "false",
    });
    const form = h(
      "form",
      {
        class: "card token",
        on: {
          submit: (event) => {
            event.preventDefault();
            const token = page.tokenIn(field.value);
            if (token) {
              page.setToken(token);
              start();
            }
          },
        },
      },
      h("h2", { text: "This page needs the token of its server" }),
      h("p", { class: "faint", text }),
      h("p", { text: "Paste the address that `intervae serve` printed:" }),
      h("div", { class: "row" }, field, h("button", { class: "main", text: "Open" })),
    );
    shown = { key: "", view: null };
    page.replace($("view"), form);
    field.focus();
  }

  let timer = 0;
  async function start() {
    clearTimeout(timer);
    try {
      const answer = await page.api.runs();
      const before = JSON.stringify(runs.map((run) => [run.id, run.state]));
      runs = answer.runs;
      resultCount = answer.results || 0;
      if (before === JSON.stringify(runs.map((run) => [run.id, run.state])) && shown.view)
        shown.view.retry?.();
      render();
      if (runs.some((run) => run.state === "loading")) timer = setTimeout(start, POLL);
    } catch (error) {
      if (error.status === 401) askForToken(error.message);
      else if (error.status !== -1)
        page.replace($("view"), empty("The page could not start.", error.message));
    }
  }

  function themeButton() {
    const button = $("theme");
    page.replace(
      button,
      svg(
        "svg",
        {
          viewBox: "0 0 16 16",
          "aria-hidden": "true",
          fill: "none",
          stroke: "currentColor",
          "stroke-width": 1.5,
        },
        svg("circle", { cx: 8, cy: 8, r: 6.25 }),
        svg("path", {
          d: "M8 1.75a6.25 6.25 0 0 1 0 12.500z",
          fill: "currentColor",
          stroke: "none",
        }),
      ),
    );
    button.addEventListener("click", () => window.intervaeTheme.next());
  }

  page.loadToken();
  themeButton();
  page.startDrops();
  $("run").addEventListener("change", () =>
    page.change({ run: Number($("run").value), view: page.state.view }),
  );
  page.startState(render);
  start();
})();
