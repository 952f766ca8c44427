/* Several runs side by side: the same picture and do(), and their spread as an uncertainty map. */
"use strict";

(() => {
  const { h } = page;

  page.views.compare = {
    label: "Compare runs",
    available: (run, runs) => !page.api.exported && comparable(run, runs).length > 1,
    create(run, runs) {
      const others = comparable(run, runs);
      const inspector = page.inspector(run);
      const picker = page.picker(run);
      const boxes = others.map((each) =>
        h("input", { type: "checkbox", value: each.id, on: { change: choose } }),
      );
      const heading = h("h2", { text: "No intervention" });
      const top = h("div", { class: "figures" });
      const answers = h("div", { class: "figures" });
      const table = h("div", { class: "scroll" });
      const notes = h("div", { class: "notices" });
      const repeat = page.repeatCard();
      const pictures = h(
        "section",
        { class: "card pictures", "aria-label": "Over the runs" },
        h("header", {}, heading),
        notes,
        top,
      );
      const element = h(
        "div",
        { class: inspector.wide ? "columns wide" : "columns" },
        inspector.element,
        h(
          "div",
          { class: "stack" },
          picker.element,
          h(
            "section",
            { class: "card", "aria-label": "Runs" },
            h("header", {}, h("h2", { text: "Runs" })),
            h(
              "div",
              { class: "row checks" },
              boxes.map((box, k) =>
                h(
                  "label",
                  {},
                  box,
                  " ",
                  others[k].name,
                  h("span", {
                    class: "small faint",
                    text: ` ${others[k].model}, seed ${others[k].seed}`,
                  }),
                ),
              ),
            ),
          ),
          pictures,
          h(
            "section",
            { class: "card", "aria-label": "Each run" },
            h("header", {}, h("h2", { text: "Each run" })),
            answers,
            table,
          ),
          repeat.element,
        ),
      );
      let asked = "";

      const chosen = (state) => {
        const ids = (state.compare || "").split(",").filter(Boolean).map(Number);
        const valid = others.filter((each) => ids.includes(each.id));
        return valid.length ? valid : others;
      };
      function choose() {
        const ids = boxes.filter((box) => box.checked).map((box) => box.value);
        page.change({
          compare: ids.length === boxes.length || !ids.length ? undefined : ids.join(","),
        });
      }

      const ask = page.latest(async (state, selected) => {
        try {
          const answer = await page.api.compare({
            runs: selected.map((each) => each.id),
            picture: page.pictureOf(state, run),
            do: state.do,
          });
          draw(state, selected, answer);
        } catch (error) {
          page.replace(notes, h("p", { class: "notice bad", text: error.message }));
        }
      });

      function draw(state, selected, answer) {
        const text = page.doText(run, state.do);
        heading.textContent = text || "No intervention";
        const figure = (title, kind, source, options) => {
          const made = page.figure(title, kind);
          made.show(page.png(source), options);
          return made.element;
        };
        page.replace(
          notes,
          answer.mean
            ? null
            : h("p", {
                class: "notice",
                text: "Choose two runs or more for a mean and an uncertainty map.",
              }),
        );
        page.replace(
          top,
          figure("Factual", "factual", answer.factual, { below: page.pictureText(state) }),
          answer.truth ? figure("Truth", "truth", answer.truth) : null,
          answer.mean ? figure("Mean of the runs", "do", answer.mean) : null,
          answer.std
            ? figure("Uncertainty", "spread", answer.std, {
                alt: "Standard deviation over the runs, per pixel",
                below: [
                  page.mapScale(answer.std_max, [], "spread"),
                  ` std; mean ${page.number(answer.std_mean, 4)}`,
                ],
              })
            : null,
        );
        page.replace(
          answers,
          answer.answers.map((each) => {
            const own = selected.find((one) => one.id === each.run);
            return figure(own ? own.name : String(each.run), "do", each.counterfactual, {
              why: each.error || "",
              below: each.pixel_mae === null ? "" : `pixel MAE ${page.number(each.pixel_mae, 4)}`,
            });
          }),
        );
        const good = answer.answers.filter((each) => !each.error);
        page.replace(table, valuesTable(run, selected, good));
        const [first] = good;
        if (first) {
          inspector.inform(
            Object.fromEntries(
              first.values.map((value) => [value.name, value.before ?? value.true_before]),
            ),
            {},
          );
        }
        repeat.update({
          code: answer.code,
          name: `compare ${text}`,
          json: { do: state.do, ...answer },
          figures: [
            ["Factual", answer.factual],
            ["Truth", answer.truth],
            ["Mean", answer.mean],
            ["Std", answer.std],
            ...good.map((each) => [
              selected.find((one) => one.id === each.run)?.name || "",
              each.counterfactual,
            ]),
          ].map(([title, source]) => ({ title, source: page.png(source) })),
        });
      }

      return {
        element,
        update(state) {
          inspector.update(state);
          picker.update(state);
          const selected = chosen(state);
          boxes.forEach(
            (box) => (box.checked = selected.some((each) => each.id === Number(box.value))),
          );
          if (!run.pictures.count && !(state.picture === "upload" && page.upload)) return;
          const key = JSON.stringify([
            page.pictureOf(state, run),
            state.do,
            selected.map((each) => each.id),
          ]);
          if (key === asked) return;
          asked = key;
          ask(state, selected);
        },
        retry() {
          asked = "";
          this.update(page.state);
        },
      };
    },
  };

  /* Runs that answer the same question: pictures of the same size with the same variables. */
  function comparable(run, runs) {
    const names = (each) => JSON.stringify([each.image, each.variables.map((v) => v.name).sort()]);
    return runs.filter(
      (each) =>
        each.state === "ready" &&
        each.capabilities.includes("do") &&
        !each.capabilities.includes("clip") &&
        run.capabilities.includes("do") &&
        names(each) === names(run),
    );
  }

  function valuesTable(run, selected, answers) {
    if (!answers.length || !answers[0].values.length) return null;
    const names = answers[0].values.map((value) => value.name);
    return h(
      "table",
      {},
      h("caption", { class: "offscreen", text: "Variables under do(), by run" }),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", { scope: "col", text: "Variable" }),
          answers.map((each) =>
            h("th", {
              scope: "col",
              class: "n",
              text: selected.find((one) => one.id === each.run)?.name || each.run,
            }),
          ),
          h("th", { scope: "col", class: "n", text: "Truth" }),
        ),
      ),
      h(
        "tbody",
        {},
        names.map((name) => {
          const variable = run.variables.find((each) => each.name === name);
          const values = answers.map((each) => each.values.find((value) => value.name === name));
          return h(
            "tr",
            { class: name in page.state.do ? "set" : "" },
            h("th", { scope: "row", text: name }),
            values.map((value) =>
              h("td", { class: "n", text: page.valueText(variable, value?.after) }),
            ),
            h("td", { class: "n", text: page.valueText(variable, values[0]?.true_after) }),
          );
        }),
      ),
    );
  }
})();
