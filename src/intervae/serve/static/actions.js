/* Models of transitions: act on a picture, and find the action between two pictures. */
"use strict";

(() => {
  const { h } = page;

  page.views.actions = {
    label: "Actions",
    available: (run) => run.capabilities.includes("act") || run.capabilities.includes("attribute"),
    create(run) {
      const parts = [
        run.capabilities.includes("act") ? actPart(run) : null,
        run.capabilities.includes("attribute") ? attributePart(run) : null,
      ].filter(Boolean);
      const picker = page.picker(run);
      return {
        element: h(
          "div",
          { class: "stack" },
          picker.element,
          parts.map((part) => part.element),
          parts.map((part) => part.repeat.element),
        ),
        update(state) {
          picker.update(state);
          parts.forEach((part) => part.update(state));
        },
        retry() {
          parts.forEach((part) => part.update(page.state, true));
        },
      };
    },
  };

  /* ---- act --------------------------------------------------------------------------------- */
  function actPart(run) {
    const chips = run.actions.map((action) =>
      h("button", {
        class: "chip",
        text: action,
        "data-action": action,
        on: { click: () => page.change({ action }) },
      }),
    );
    const times = h("input", {
      type: "range",
      min: 1,
      max: page.api.exported ? 4 : 8,
      step: 1,
      "aria-label": "Times",
      on: { input: () => page.change({ times: Number(times.value) }, { push: false }) },
    });
    const shown = h("output", { class: "small numeric" });
    const film = h("div", { class: "actions-film" });
    const message = h("p", { class: "notice bad", hidden: true });
    const repeat = page.repeatCard("Repeat the action");
    let asked = "";

    const ask = page.latest(async (state, action, count) => {
      try {
        const answer = await page.api.act(run.id, {
          picture: page.pictureOf(state, run),
          action,
          times: count,
        });
        message.hidden = true;
        const cell = (title, source, change, kind) =>
          h(
            "figure",
            { class: `figure ${kind}` },
            h("figcaption", { text: title }),
            h("img", { class: "picture", src: page.png(source), alt: title }),
            change
              ? h("img", {
                  class: "picture change",
                  src: page.png(change),
                  alt: `Change: ${title}`,
                })
              : null,
          );
        page.replace(
          film,
          cell("Before", answer.factual, null, "factual"),
          answer.pictures.map((source, k) =>
            cell(k ? `${k + 1} times` : action, source, answer.changes[k], "do"),
          ),
        );
        repeat.update({
          code: answer.code,
          name: `${run.name} ${action}`,
          json: { run: run.folder, ...answer },
          figures: [
            ["Before", answer.factual],
            ...answer.pictures.map((source, k) => [`${action}, ${k + 1}`, source]),
          ].map(([title, source]) => ({ title, source: page.png(source) })),
        });
      } catch (error) {
        message.hidden = false;
        message.textContent = error.message;
      }
    });
    const element = h(
      "section",
      { class: "card", "aria-label": "Act" },
      h(
        "header",
        {},
        h("h2", { text: "Act" }),
        h("p", { text: "the picture after an action; below it, what changed" }),
      ),
      h(
        "div",
        { class: "stack" },
        h("div", { class: "chips", role: "group", "aria-label": "Action" }, chips),
        h("label", { class: "row small" }, "Times", times, shown),
        message,
        film,
        h("p", { class: "small faint", text: "Change: blue is darker, red is brighter." }),
      ),
    );
    return {
      element,
      repeat,
      update(state, again = false) {
        const action = run.actions.includes(state.action) ? state.action : run.actions[0];
        const count = Math.max(1, Math.min(Number(times.max), state.times || 3));
        chips.forEach((chip) =>
          chip.setAttribute("aria-pressed", String(chip.dataset.action === action)),
        );
        times.value = count;
        shown.textContent = count;
        if (!run.pictures.count && !(state.picture === "upload" && page.upload)) return;
        const key = JSON.stringify([page.pictureOf(state, run), action, count]);
        if (key === asked && !again) return;
        asked = key;
        ask(state, action, count);
      },
    };
  }

  /* ---- attribute --------------------------------------------------------------------------- */
  function attributePart(run) {
    const file = (side) => {
      const input = h("input", {
        type: "file",
        accept: "image/*",
        class: "offscreen",
        tabindex: -1,
        "aria-label": `Picture ${side}`,
        on: { change: () => input.files[0] && take(side, input.files[0]) },
      });
      return h(
        "span",
        {},
        h("button", { text: `Upload ${side}\u2026`, on: { click: () => input.click() } }),
        input,
      );
    };
    const own = { before: null, after: null };
    const pairs = h("div", { class: "thumbs pairs", role: "group", "aria-label": "Test pairs" });
    const sides = { before: page.figure("Before", "before"), after: page.figure("After", "after") };
    const bars = h("div", { class: "bars" });
    const note = h("p", { class: "notice warn", role: "status", hidden: true });
    const verdict = h("p");
    const repeat = page.repeatCard("Repeat the attribution");
    let asked = "";
    let listed = false;

    async function take(side, chosen) {
      try {
        own[side] = { png: (await page.readUpload(run, chosen)).png };
        sides[side].show(page.png(own[side].png), { below: chosen.name });
        if (own.before && own.after) ask({ before: own.before, after: own.after });
        else {
          note.hidden = false;
          note.textContent = `Now upload the picture ${side === "before" ? "after" : "before"} the action.`;
        }
      } catch (error) {
        note.hidden = false;
        note.textContent = error.message;
      }
    }

    const ask = page.latest(async (body) => {
      try {
        const answer = await page.api.attribute(run.id, body);
        sides.before.show(page.png(answer.before));
        sides.after.show(page.png(answer.after));
        note.hidden = !answer.note;
        note.textContent = answer.note || "";
        page.replace(
          verdict,
          "Explained best by ",
          h("b", { text: answer.best }),
          answer.true_action
            ? h("span", { class: "faint", text: `; the true action was ${answer.true_action}` })
            : null,
          ".",
        );
        page.replace(
          bars,
          answer.actions.map((action, k) => [
            h("span", { class: k === 0 ? "best" : "", text: action.name }),
            meter(action.probability),
            h("span", { class: "numeric", text: page.number(action.probability, 3) }),
          ]),
        );
        repeat.update({
          code: answer.code,
          name: `${run.name} attribute`,
          json: { run: run.folder, ...answer },
          figures: [
            ["Before", answer.before],
            ["After", answer.after],
          ].map(([title, source]) => ({ title, source: page.png(source) })),
        });
      } catch (error) {
        note.hidden = false;
        note.textContent = error.message;
      }
    });

    const element = h(
      "section",
      { class: "card", "aria-label": "Attribute" },
      h(
        "header",
        {},
        h("h2", { text: "Which action was it?" }),
        page.api.exported ? null : h("div", { class: "row push" }, file("before"), file("after")),
      ),
      h(
        "div",
        { class: "stack" },
        run.pairs ? pairs : null,
        note,
        h(
          "div",
          { class: "attribute" },
          h("div", { class: "figures two" }, sides.before.element, sides.after.element),
          h("div", { class: "stack" }, verdict, bars),
        ),
      ),
    );
    return {
      element,
      repeat,
      async update(state, again = false) {
        if (!run.pairs) return;
        if (!listed) {
          listed = true;
          const answer = await page.api.pairs(run.id, 0, 12).catch(() => ({ pairs: [] }));
          page.replace(
            pairs,
            answer.pairs.map((pair) =>
              h(
                "button",
                {
                  "data-pair": pair.pair,
                  "aria-label": `Test pair ${pair.pair}`,
                  on: { click: () => page.change({ pair: pair.pair }) },
                },
                h(
                  "span",
                  { class: "two" },
                  h("img", { class: "picture", src: page.png(pair.before), alt: "" }),
                  h("img", { class: "picture", src: page.png(pair.after), alt: "" }),
                ),
                pair.pair,
              ),
            ),
          );
        }
        const pair = state.pair || 0;
        for (const button of pairs.children)
          button.setAttribute("aria-pressed", String(Number(button.dataset.pair) === pair));
        if (asked === pair && !again) return;
        asked = pair;
        ask({ pair });
      },
    };
  }

  function meter(share) {
    const fill = h("i");
    fill.style.width = `${100 * Math.max(0, Math.min(1, share))}%`;
    return h("span", { class: "meter", role: "presentation" }, fill);
  }
})();
