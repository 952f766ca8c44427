/* What if: the factual picture, the model's answer, the simulator's truth and the difference. */
"use strict";

(() => {
  const { h } = page;
  const STRIP = 8;

  /* A titled picture. Returns {element, show(source, under, note)}. */
  page.figure = (title, kind = "") => {
    const image = h("img", { class: "picture", alt: title });
    const missing = h("div", { class: "picture missing", hidden: true });
    const small = h("small", { class: "numeric" });
    const under = h("div", { class: "under" });
    const heading = h("span", { text: title });
    const element = h(
      "figure",
      { class: `figure ${kind}`, "data-figure": kind || title.toLowerCase() },
      h("figcaption", {}, heading, small),
      image,
      missing,
      under,
    );
    return {
      element,
      image,
      under,
      show(source, { note = "", below = "", alt = title, why = "" } = {}) {
        image.hidden = !source;
        missing.hidden = Boolean(source);
        missing.textContent = source ? "" : why;
        if (source && image.src !== source) image.src = source;
        image.alt = alt;
        small.textContent = note;
        if (typeof below === "string") under.textContent = below;
        else page.replace(under, below);
      },
      title(text) {
        heading.textContent = text;
      },
    };
  };

  const round = (value) => page.number(Number(Number(value).toPrecision(2)));

  page.mapScale = (largest, words = ["darker", "brighter"], kind = "") =>
    h(
      "span",
      { class: `scale ${kind}` },
      kind ? "0" : `\u2212${round(largest)}`,
      h("i", { "aria-hidden": "true" }),
      kind ? round(largest) : `+${round(largest)}`,
      h("span", {
        class: "offscreen",
        text: words.length ? `blue: ${words[0]}, red: ${words[1]}` : "",
      }),
    );

  /* Whether the model's picture shows another value than was set, see `not_shown`. */
  function isOff(value, variable) {
    if ((value.shown ?? null) === null || value.after === null || !variable) return false;
    const limit = variable.kind === "continuous" ? variable.std / 2 : 0.5;
    return Math.abs(value.shown - value.after) > (limit || Infinity);
  }

  /* Rows of variables before and after do(). */
  function valuesTable(run, answer, doing) {
    const truth = answer.values.some(
      (value) => value.true_after !== null && value.true_after !== undefined,
    );
    const read = answer.values.some((value) => (value.shown ?? null) !== null);
    const set = new Set(Object.keys(doing));
    const hard = new Set(Object.keys(doing).filter((name) => typeof doing[name] !== "object"));
    const lit = run.graph
      ? page.descendants(
          run.graph.edges.filter((e) => e.kind !== "missing"),
          set,
          hard,
        )
      : new Set();
    const rows = answer.values.map((value) => {
      const variable = run.variables.find((each) => each.name === value.name);
      const state = set.has(value.name) ? "set" : lit.has(value.name) ? "affected" : "";
      const show = (number) => page.valueText(variable, number);
      return h(
        "tr",
        { class: state, "data-variable": value.name },
        h(
          "th",
          { scope: "row" },
          value.name,
          state ? h("span", { class: "tag", text: state }) : null,
        ),
        h("td", { class: "n", text: show(value.before ?? value.true_before) }),
        h("td", {
          class: "n",
          text: show(value.after ?? (hard.has(value.name) ? doing[value.name] : null)),
        }),
        read
          ? h("td", { class: isOff(value, variable) ? "n off" : "n", text: show(value.shown) })
          : null,
        truth ? h("td", { class: "n", text: show(value.true_after) }) : null,
        truth
          ? h("td", {
              class: "n",
              text: page.number(
                value.error,
                variable && page.decimals(variable.high - variable.low) + 1,
              ),
            })
          : null,
        h("td", { class: "faint unit", text: value.unit || "" }),
      );
    });
    const head = [
      "Variable",
      "In this picture",
      "Under do()",
      ...(read ? ["Picture shows"] : []),
      ...(truth ? ["Truth", "Error"] : []),
      "Unit",
    ];
    return h(
      "table",
      {},
      h("caption", {
        class: "offscreen",
        text: "Variables before and after the intervention, by the model",
      }),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          head.map((text, k) =>
            h("th", { scope: "col", class: k && k < head.length - 1 ? "n" : "", text }),
          ),
        ),
      ),
      h("tbody", {}, rows),
    );
  }

  /* The same do() on eight pictures of the test split. */
  function stripCard(run) {
    const grid = h("div", { class: "strip" });
    const message = h("p", { class: "small faint" });
    const count = run.pictures.count;
    const all = page.api.exported ? page.api.indices(run.id) : null;
    const indices = all
      ? all.slice(0, STRIP)
      : [...new Set(Array.from({ length: STRIP }, (_, k) => Math.floor((k * count) / STRIP)))];
    const row = (name, pictures, alt) => [
      h("span", { class: "side", text: name }),
      pictures.map((source, k) =>
        h("img", {
          class: "picture",
          src: page.png(source),
          alt: `${alt}, test picture ${indices[k]}`,
        }),
      ),
    ];
    const ask = page.latest(async (state) => {
      try {
        const answer = await page.api.do(
          run.id,
          indices.map((index) => ({ index })),
          state.do,
        );
        const pick = (key) => answer.answers.map((each) => each[key]);
        grid.style.setProperty("--strip", indices.length);
        page.replace(
          grid,
          h("span", { class: "side" }),
          indices.map((index) =>
            h(
              "span",
              { class: "head" },
              h("button", {
                text: index,
                "aria-label": `Show test picture ${index}`,
                on: { click: () => page.change({ picture: index }) },
              }),
            ),
          ),
          row("Factual", pick("factual"), "Factual"),
          row("Model", pick("counterfactual"), "Model"),
          pick("truth").every(Boolean) ? row("Truth", pick("truth"), "Truth") : null,
        );
        const errors = answer.answers
          .map((each) => each.errors?.pixel_mae)
          .filter((e) => e !== undefined && e !== null);
        message.textContent = errors.length
          ? `Mean pixel error over these ${errors.length}: ${page.number(errors.reduce((a, b) => a + b, 0) / errors.length, 4)}`
          : "";
      } catch (error) {
        message.textContent = error.message;
      }
    });
    let timer = 0;
    let asked = "";
    return {
      element: h(
        "section",
        { class: "card", "aria-label": "Eight pictures" },
        h("header", {}, h("h2", { text: "The same do() on eight pictures" }), message),
        grid,
      ),
      update(state) {
        const key = JSON.stringify(state.do);
        if (key === asked) return;
        asked = key;
        clearTimeout(timer);
        timer = setTimeout(() => ask(state), grid.childElementCount ? 300 : 30);
      },
    };
  }

  page.views = page.views || {};
  page.views.whatif = {
    label: "What if",
    available: (run) => run.capabilities.includes("do") && !run.capabilities.includes("clip"),
    create(run) {
      const inspector = page.inspector(run);
      const picker = page.picker(run);
      const hasTruth = run.capabilities.includes("truth");
      const figures = {
        factual: page.figure("Factual", "factual"),
        model: page.figure("Model", "do"),
        truth: page.figure("Truth", "truth"),
        map: page.figure("Difference", "difference"),
      };
      const grid = h(
        "div",
        { class: "figures" },
        Object.values(figures).map((figure) => figure.element),
      );
      const against = h(
        "div",
        { class: "segments", role: "group", "aria-label": "Difference between the model and" },
        ["truth", "factual"].map((each) =>
          h("button", {
            "data-map": each,
            text: each === "truth" ? "Model \u2212 truth" : "Model \u2212 factual",
            on: {
              click: () =>
                page.change({ map: each === "truth" ? undefined : each }, { push: false }),
            },
          }),
        ),
      );
      const heading = h("h2", { text: "No intervention" });
      const timing = h("span", { class: "small faint numeric" });
      const problem = h("div", { class: "notices" });
      const notes = h("div", { class: "notices under-table", role: "status" });
      const table = h("div", { class: "scroll" });
      const pictures = h(
        "section",
        { class: "card pictures", "aria-label": "Pictures" },
        h("header", {}, heading, timing),
        problem,
        grid,
        h(
          "div",
          { class: "foot" },
          against,
          h("span", { class: "small faint", text: "blue: the model is darker, red: brighter" }),
        ),
      );
      const values = h(
        "section",
        { class: "card", "aria-label": "Values", hidden: true },
        h("header", {}, h("h2", { text: "Variables" }), h("p", { text: "read in the picture, then set or computed" })),
        table,
        notes,
      );
      const strip = run.pictures.count ? stripCard(run) : null;
      const sweep = page.sweepCard(run);
      const repeat = page.repeatCard();
      const element = h(
        "div",
        { class: inspector.wide ? "columns wide" : "columns" },
        inspector.element,
        h(
          "div",
          { class: "stack" },
          picker.element,
          pictures,
          values,
          sweep.element,
          strip?.element,
          repeat.element,
        ),
      );
      let shown = null; // {key, answer, state}
      let asking = null; // the key of the last question

      const ask = page.latest(async (state, key, started) => {
        pictures.classList.add("busy");
        try {
          const answer = await page.api.do(run.id, [page.pictureOf(state, run)], state.do);
          if (!element.isConnected) return;
          shown = { key, answer, state };
          await draw(started);
        } catch (error) {
          page.replace(problem, h("p", { class: "notice bad", text: error.message }));
        } finally {
          pictures.classList.remove("busy");
        }
      });

      async function draw(started) {
        const { answer, state } = shown;
        const [one] = answer.answers;
        const text = page.doText(run, state.do);
        const versusTruth = Boolean(one.truth) && state.map !== "factual";
        heading.textContent = text || "No intervention";
        const beside = Object.keys(answer.warnings || {}); // these stand beside the controls
        page.replace(problem);
        page.replace(
          notes,
          (answer.notes || [])
            .filter((note) => !beside.some((name) => note.startsWith(`${name}=`)))
            .map((note) => h("p", { class: "notice warn", text: note })),
        );
        figures.factual.show(page.png(one.factual), {
          below: h("span", { class: "more", text: page.pictureText(state) }),
          alt: `Factual: ${page.pictureText(state)}`,
        });
        figures.model.title(text ? "Model" : "Model, reconstruction");
        figures.model.show(page.png(one.counterfactual), {
          alt: `The model's picture under ${text || "no intervention"}`,
          below: one.errors
            ? h(
                "span",
                {},
                h("span", { class: "more", text: "pixel " }),
                `MAE ${page.number(one.errors.pixel_mae, 4)}`,
              )
            : "",
        });
        figures.truth.element.hidden = !hasTruth;
        figures.truth.show(page.png(one.truth), {
          why: one.truth_error || "The simulator's truth is known for test pictures only.",
          below:
            one.errors && text
              ? h("span", {
                  class: "more",
                  text: `unchanged picture ${page.number(one.errors.identity_pixel_mae, 4)}`,
                })
              : "",
        });
        figures.map.show(page.png(versusTruth ? one.difference : one.change), {
          below: page.mapScale(versusTruth ? one.difference_max : one.change_max),
          alt: versusTruth ? "Difference between model and truth" : "Change of the picture",
        });
        figures.map.title(versusTruth ? "Difference" : "Change");
        against.hidden = !one.truth;
        for (const button of against.children) {
          button.setAttribute(
            "aria-pressed",
            String((button.dataset.map === "truth") === versusTruth),
          );
        }
        grid.className = hasTruth ? "figures" : "figures three";
        values.hidden = !one.values.length;
        page.replace(table, valuesTable(run, one, state.do));
        inspector.inform(
          Object.fromEntries(
            one.values.map((value) => [value.name, value.before ?? value.true_before]),
          ),
          answer.warnings,
        );
        const name = `${run.name} ${page.pictureText(state)} ${text}`;
        repeat.update({
          code: answer.code,
          name,
          json: { run: run.folder, picture: page.pictureText(state), do: state.do, ...answer },
          figures: [
            ["Factual", one.factual],
            [text || "Reconstruction", one.counterfactual],
            ["Truth", one.truth],
            ["Difference", versusTruth ? one.difference : one.change],
          ].map(([title, source]) => ({ title, source: page.png(source) })),
        });
        await figures.model.image.decode().catch(() => {});
        grid.dataset.shown = shown.key;
        if (started !== undefined) {
          const took = performance.now() - started;
          timing.textContent =
            answer.milliseconds === undefined ? "" : `${page.number(took, 0)} ms`;
          timing.title = `${page.number(answer.milliseconds, 1)} ms of them in the server`;
          grid.dataset.milliseconds = took;
        }
      }

      return {
        element,
        update(state) {
          inspector.update(state);
          picker.update(state);
          sweep.update(state);
          strip?.update(state);
          if (!run.pictures.count && !(state.picture === "upload" && page.upload)) {
            pictures.hidden = true;
            sweep.element.hidden = true;
            return;
          }
          pictures.hidden = sweep.element.hidden = false;
          const key = JSON.stringify([
            page.pictureOf(state, run).index ?? page.upload.png,
            state.do,
          ]);
          if (shown && shown.key === key) {
            shown.state = state;
            draw();
          } else if (asking !== key) {
            asking = key;
            ask(state, key, performance.now());
          }
        },
        retry() {
          asking = null;
          this.update(page.state);
        },
      };
    },
  };
})();
