/* Latents of any model: move one, sample new pictures, and heat maps of where it looks. */
"use strict";

(() => {
  const { h } = page;

  page.views.latents = {
    label: "Latents",
    available: (run) =>
      run.capabilities.includes("traverse") || run.capabilities.includes("sample"),
    create(run) {
      const parts = [
        run.capabilities.includes("traverse") ? traversePart(run) : null,
        run.capabilities.includes("heat_map") && !run.capabilities.includes("findings")
          ? page.heatMaps(run)
          : null,
        run.capabilities.includes("sample") && !page.api.exported ? samplePart(run) : null,
      ].filter(Boolean);
      const picker = run.capabilities.includes("traverse") ? page.picker(run) : null;
      const why = run.graph
        ? null
        : h(
            "p",
            { class: "notice" },
            h("b", { text: "This model has no causal graph." }),
            "Nothing can be set by do(); what can be seen is how its latents change the picture.",
          );
      const missing =
        run.pictures.error && !picker
          ? h(
              "p",
              { class: "notice warn" },
              h("b", { text: "There are no test pictures." }),
              run.pictures.error,
            )
          : null;
      return {
        element: h(
          "div",
          { class: "stack" },
          why,
          missing,
          picker?.element,
          parts.map((part) => part.element),
        ),
        update(state) {
          picker?.update(state);
          parts.forEach((part) => part.update(state));
        },
        retry() {
          parts.forEach((part) => part.update(page.state, true));
        },
      };
    },
  };

  function traversePart(run) {
    const select = h(
      "select",
      {
        "aria-label": "Latent",
        on: { change: () => page.change({ latent: select.value, dim: undefined }) },
      },
      run.latents.map((latent) => h("option", { value: latent.name, text: latent.name })),
    );
    const dim = h("select", {
      "aria-label": "Dimension",
      on: { change: () => page.change({ dim: Number(dim.value) }) },
    });
    const factual = page.figure("Factual", "factual");
    const rebuilt = page.figure("Reconstruction", "model");
    const player = page.player();
    const message = h("p", { class: "notice bad", hidden: true });
    const repeat = page.repeatCard();
    let asked = "";
    player.film.classList.add("large");
    const ask = page.latest(async (state, latent, at) => {
      try {
        const answer = await page.api.traverse(run.id, {
          picture: page.pictureOf(state, run),
          latent,
          dim: at,
          values: null,
          count: 11,
        });
        message.hidden = true;
        factual.show(page.png(answer.factual), { below: page.pictureText(state) });
        rebuilt.show(page.png(answer.reconstruction), {
          below: `${latent} = ${page.number(answer.value)}`,
        });
        const decimals = page.decimals(Math.max(...answer.values) - Math.min(...answer.values));
        player.load(
          answer.frames.map((frame, k) => ({
            source: page.png(frame),
            text: page.number(answer.values[k], decimals),
          })),
        );
        const nearest = answer.values.reduce(
          (best, v, k) =>
            Math.abs(v - answer.value) < Math.abs(answer.values[best] - answer.value) ? k : best,
          0,
        );
        player.start(nearest);
        repeat.update({
          code: answer.code,
          name: `${run.name} ${latent}`,
          json: { run: run.folder, ...answer },
          figures: answer.frames.map((frame, k) => ({
            title: `${latent} = ${page.number(answer.values[k], decimals)}`,
            source: page.png(frame),
          })),
        });
      } catch (error) {
        message.hidden = false;
        message.textContent = error.message;
      }
    });
    const element = h(
      "div",
      { class: "stack" },
      h(
        "section",
        { class: "card", "aria-label": "Traversal" },
        h("header", {}, h("h2", { text: "Move one latent" }), select, dim, player.button),
        message,
        h(
          "div",
          { class: "figures three compact" },
          factual.element,
          rebuilt.element,
          h(
            "figure",
            { class: "figure do", "data-figure": "traversal" },
            h("figcaption", {}, "Moved", h("small", {}, player.text)),
            player.picture,
            h("div", { class: "under" }, player.slider),
          ),
        ),
        player.film,
      ),
      repeat.element,
    );
    return {
      element,
      update(state, again = false) {
        const latent = run.latents.find((each) => each.name === state.latent) || run.latents[0];
        if (!latent) return;
        select.value = latent.name;
        page.replace(
          dim,
          Array.from({ length: latent.dims }, (_, k) =>
            h("option", { value: k, text: `dimension ${k}` }),
          ),
        );
        dim.hidden = latent.dims < 2 || page.api.exported;
        const at = Math.min(latent.dims - 1, state.dim || 0);
        dim.value = at;
        if (!run.pictures.count && !(state.picture === "upload" && page.upload)) return;
        const key = JSON.stringify([page.pictureOf(state, run), latent.name, at]);
        if (key === asked && !again) return;
        asked = key;
        ask(state, latent.name, at);
      },
    };
  }

  function samplePart(run) {
    const grid = h("div", { class: "thumbs samples" });
    const seed = h("input", {
      type: "number",
      min: 0,
      step: 1,
      "aria-label": "Seed",
      on: { change: () => page.change({ seed: Math.max(0, Math.round(Number(seed.value)) || 0) }) },
    });
    const next = h("button", {
      text: "Draw again",
      on: { click: () => page.change({ seed: (page.state.seed || 0) + 1 }) },
    });
    const note = h("p");
    let asked = "";
    const ask = page.latest(async (state) => {
      try {
        const doing = run.capabilities.includes("sample_do") ? state.do : {};
        const answer = await page.api.sample(run.id, {
          count: 24,
          seed: state.seed || 0,
          do: doing,
        });
        note.textContent = page.doText(run, doing) ? `under ${page.doText(run, doing)}` : "";
        page.replace(
          grid,
          answer.pictures.map((source, k) =>
            h("img", { class: "picture", src: page.png(source), alt: `Sample ${k}` }),
          ),
        );
      } catch (error) {
        note.textContent = error.message;
      }
    });
    return {
      element: h(
        "section",
        { class: "card", "aria-label": "Samples" },
        h(
          "header",
          {},
          h("h2", { text: "New pictures" }),
          note,
          h("label", { class: "row small push" }, "Seed", seed, next),
        ),
        grid,
      ),
      update(state, again = false) {
        seed.value = state.seed || 0;
        const key = JSON.stringify([
          state.seed,
          run.capabilities.includes("sample_do") ? state.do : 0,
        ]);
        if (key === asked && !again) return;
        asked = key;
        ask(state);
      },
    };
  }
})();
