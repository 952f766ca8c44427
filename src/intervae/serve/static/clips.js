/* Clips: the frames, the model's prediction, extrapolated frames, and do() at a frame. */
"use strict";

(() => {
  const { h } = page;

  page.views.clips = {
    label: "Clip",
    available: (run) => run.capabilities.includes("clip"),
    create(run) {
      const steps = h("input", {
        type: "number",
        min: 0,
        max: 16,
        step: 1,
        "aria-label": "Frames to predict after the clip",
        on: {
          change: () =>
            page.change({ steps: Math.max(0, Math.min(16, Math.round(Number(steps.value)) || 0)) }),
        },
      });
      const inspector = page.inspector(run);
      const picker = page.picker(run, "clip");
      const heading = h("h2", { text: "No intervention" });
      const notes = h("div", { class: "notices" });
      const players = h("div", { class: "figures player-figures" });
      const slider = h("input", {
        type: "range",
        min: 0,
        step: 1,
        value: 0,
        "aria-label": "Frame",
      });
      const where = h("output", { class: "small numeric" });
      const play = h("button", {
        class: "main",
        text: "Play",
        on: { click: () => (timer ? stop() : start()) },
      });
      const rows = h("div", {
        class: "clip-rows",
        tabindex: 0,
        role: "group",
        "aria-label": "All frames",
      });
      const table = h("div", { class: "scroll" });
      const values = h(
        "section",
        { class: "card", hidden: true, "aria-label": "Values" },
        h("header", {}, h("h2", { text: "Variables that change" })),
        table,
      );
      const repeat = page.repeatCard();
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
            { class: "card pictures", "aria-label": "Clip" },
            h(
              "header",
              {},
              heading,
              page.api.exported
                ? null
                : h("label", { class: "row small push" }, "Extrapolate", steps, "frames"),
            ),
            notes,
            players,
            h("div", { class: "row player" }, play, slider, where),
          ),
          h(
            "section",
            { class: "card", "aria-label": "Frames" },
            h(
              "header",
              {},
              h("h2", { text: "Frames" }),
              h("p", { text: "framed in orange: extrapolated beyond the clip" }),
            ),
            rows,
          ),
          values,
          repeat.element,
        ),
      );
      let asked = "";
      let series = [];
      let length = 0;
      let given = 0;
      let timer = 0;

      function show(k) {
        slider.value = k;
        where.textContent = `frame ${k + 1} of ${length}${k >= given ? ", extrapolated" : ""}`;
        for (const { figure, frames } of series) {
          figure.show(frames[k] ? page.png(frames[k]) : "", { why: "The clip has ended." });
        }
        rows
          .querySelectorAll("[data-frame]")
          .forEach((cell) => cell.classList.toggle("now", Number(cell.dataset.frame) === k));
      }
      function start() {
        play.textContent = "Pause";
        timer = setInterval(
          () => (element.isConnected ? show((Number(slider.value) + 1) % length) : stop()),
          300,
        );
      }
      function stop() {
        clearInterval(timer);
        timer = 0;
        play.textContent = "Play";
      }
      slider.addEventListener("input", () => {
        stop();
        show(Number(slider.value));
      });

      const ask = page.latest(async (state) => {
        try {
          const answer = await page.api.clip(run.id, {
            picture: page.pictureOf(state, run),
            do: state.do,
            steps: state.steps ?? 3,
          });
          if (element.isConnected) draw(state, answer);
        } catch (error) {
          page.replace(notes, h("p", { class: "notice bad", text: error.message }));
        }
      });

      function draw(state, answer) {
        const text = page.doText(run, state.do);
        heading.textContent = text || "No intervention";
        page.replace(
          notes,
          (answer.notes || []).map((note) => h("p", { class: "notice warn", text: note })),
        );
        given = answer.given;
        length = Math.max(answer.frames.length, answer.predicted.length);
        const wanted = [
          ["Clip", "factual", answer.frames],
          ["Model", "model", answer.predicted],
        ];
        if (text) wanted.push(["Model under do()", "do", answer.counterfactual]);
        if (answer.truth) wanted.push(["Truth", "truth", answer.truth]);
        series = wanted.map(([title, kind, frames]) => ({
          figure: page.figure(title, kind),
          frames,
          title,
        }));
        page.replace(
          players,
          series.map((each) => each.figure.element),
        );
        players.className = `figures player-figures ${["", "", "two", "three", ""][series.length] || ""}`;
        slider.max = length - 1;
        page.replace(
          rows,
          series.map(({ title, frames }) => [
            h("span", { class: "side", text: title }),
            h(
              "div",
              { class: "film", "data-row": title },
              frames.map((frame, k) =>
                h(
                  "figure",
                  { "data-frame": k, class: k >= given ? "later" : "" },
                  h("img", {
                    class: "picture",
                    src: page.png(frame),
                    alt: `${title}, frame ${k + 1}`,
                  }),
                  k + 1,
                ),
              ),
            ),
          ]),
        );
        show(Math.min(Number(slider.value), length - 1));
        const changed = answer.values.filter((value) => value.changed);
        values.hidden = !changed.length;
        page.replace(
          table,
          h(
            "table",
            {},
            h(
              "thead",
              {},
              h(
                "tr",
                {},
                ["Variable", "Frame", "Before", "Under do()"].map((name, k) =>
                  h("th", { scope: "col", class: k ? "n" : "", text: name }),
                ),
              ),
            ),
            h(
              "tbody",
              {},
              changed.map((value) =>
                h(
                  "tr",
                  {
                    class: value.name in state.do ? "set" : "affected",
                    "data-variable": value.name,
                  },
                  h(
                    "th",
                    { scope: "row" },
                    value.name,
                    h("span", { class: "tag", text: value.name in state.do ? "set" : "affected" }),
                  ),
                  h("td", { class: "n", text: value.frame ?? "\u2013" }),
                  h("td", { class: "n", text: page.number(value.before, 3) }),
                  h("td", { class: "n", text: page.number(value.after, 3) }),
                ),
              ),
            ),
          ),
        );
        inspector.inform(
          Object.fromEntries(answer.values.map((value) => [value.name, value.before])),
          {},
        );
        repeat.update({
          code: answer.code,
          name: `${run.name} ${page.pictureText(state, "clip")} ${text}`,
          json: { run: run.folder, do: state.do, ...answer },
          figures: series.flatMap(({ title, frames }) =>
            frames.map((frame, k) => ({ title: `${title} ${k + 1}`, source: page.png(frame) })),
          ),
        });
      }

      return {
        element,
        update(state) {
          inspector.update(state);
          picker.update(state);
          steps.value = state.steps ?? 3;
          if (!run.pictures.count) return;
          const key = JSON.stringify([state.picture, state.do, state.steps]);
          if (key === asked) return;
          asked = key;
          ask(state);
        },
        retry() {
          asked = "";
          this.update(page.state);
        },
      };
    },
  };
})();
