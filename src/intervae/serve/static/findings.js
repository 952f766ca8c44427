/* Findings of a model with a table: links between columns and latents, and their heat maps. */
"use strict";

(() => {
  const { h } = page;
  const SHOWN = 8;

  page.views.findings = {
    label: "Findings",
    available: (run) => run.capabilities.includes("findings"),
    create(run) {
      const table = h("div", { class: "scroll" });
      const message = h("p", {
        class: "small faint",
        text: "Measuring the links on resampled rows; this takes some seconds the first time.",
      });
      const links = h(
        "section",
        { class: "card", "aria-label": "Links" },
        h("header", {}, h("h2", { text: "Links between the table and the pictures" })),
        message,
        table,
      );
      const heat = run.capabilities.includes("heat_map") ? page.heatMaps(run) : null;
      let loaded = false;

      async function load() {
        try {
          const answer = await page.api.findings(run.id);
          message.textContent = answer.links.length
            ? `Edges of strength ${page.number(answer.threshold)} or more, with their confidence over ${answer.resamples} resamples.`
            : "The model found no link between the table and the pictures.";
          if (answer.links.length) {
            page.replace(table, linksTable(answer));
            const [first] = answer.links;
            if (!page.state.latent) page.change({ latent: first.latent }, { push: false });
          }
        } catch (error) {
          message.className = "notice bad";
          message.textContent = error.message;
        }
      }
      return {
        element: h("div", { class: "stack" }, links, heat?.element),
        update(state) {
          if (!loaded) {
            loaded = true;
            load();
          }
          heat?.update(state);
        },
        retry() {
          loaded = false;
          this.update(page.state);
        },
      };
    },
  };

  const share = (value) =>
    value === null || value === undefined ? "\u2013" : `${Math.round(100 * value)} %`;

  function linksTable(answer) {
    return page.sortable({
      caption: "Links",
      columns: [
        {
          name: "Link",
          value: (link) => link.text,
          cell: (link) =>
            h(
              "span",
              {},
              h("b", { text: link.cause }),
              link.direction_identifiable ? " \u2192 " : " \u2013 ",
              h("b", { text: link.effect }),
              link.direction_identifiable
                ? null
                : h("span", { class: "tag", text: "direction not identifiable" }),
            ),
        },
        {
          name: "Strength",
          number: true,
          value: (link) => link.strength,
          cell: (link) => page.number(link.strength, 2),
        },
        {
          name: "Confidence",
          number: true,
          value: (link) => link.link_confidence ?? -1,
          cell: (link) => share(link.link_confidence),
        },
        {
          name: "Direction",
          number: true,
          value: (link) => link.direction_confidence ?? -1,
          cell: (link) => share(link.direction_confidence),
        },
        {
          name: "Explained on test",
          number: true,
          value: (link) => link.test_explained,
          cell: (link) => share(link.test_explained),
        },
        {
          name: "Trend",
          number: true,
          value: (link) => link.trend ?? 0,
          cell: (link) => (link.trend === null ? "\u2013" : page.signed(link.trend, 2)),
        },
      ],
      rows: answer.links,
    });
  }

  /* Eight test pictures with what raises or lowers a latent. Returns {element, update}. */
  page.heatMaps = (run) => {
    const select = h(
      "select",
      { "aria-label": "Latent", on: { change: () => page.change({ latent: select.value }) } },
      run.latents.map((latent) => h("option", { value: latent.name, text: latent.name })),
    );
    const signs = h(
      "div",
      { class: "segments", role: "group", "aria-label": "Direction" },
      ["+", "\u2212"].map((text, k) =>
        h("button", {
          text: k ? "lowers it" : "raises it",
          on: { click: () => page.change({ sign: k ? "-1" : undefined }) },
        }),
      ),
    );
    const grid = h("div", { class: "strip" });
    const message = h("p");
    let asked = "";
    const ask = page.latest(async (state, latent, sign) => {
      try {
        const all = page.api.exported ? page.api.indices(run.id) : null;
        const indices = all
          ? all.slice(0, SHOWN)
          : Array.from({ length: Math.min(SHOWN, run.pictures.count) }, (_, k) =>
              Math.floor((k * run.pictures.count) / SHOWN),
            );
        const answer = await page.api.heatMap(run.id, {
          pictures: indices.map((index) => ({ index })),
          latent,
          sign,
        });
        const row = (name, sources) => [
          h("span", { class: "side", text: name }),
          sources.map((source, k) =>
            h("img", {
              class: "picture",
              src: page.png(source),
              alt: `${name}, test picture ${indices[k]}`,
            }),
          ),
        ];
        page.replace(grid, row("Picture", answer.pictures), row("Heat map", answer.overlays));
        message.textContent = "";
      } catch (error) {
        message.textContent = error.message;
      }
    });
    return {
      element: h(
        "section",
        { class: "card", "aria-label": "Heat maps" },
        h(
          "header",
          {},
          h("h2", { text: "Where the encoder looks" }),
          select,
          page.api.exported ? null : signs,
          message,
        ),
        grid,
      ),
      update(state) {
        const latent = run.latents.find((each) => each.name === state.latent) || run.latents[0];
        if (!latent || !run.pictures.count) return;
        const sign = state.sign === "-1" ? -1 : 1;
        select.value = latent.name;
        [...signs.children].forEach((button, k) =>
          button.setAttribute("aria-pressed", String((k === 1) === sign < 0)),
        );
        const key = `${latent.name} ${sign}`;
        if (key === asked) return;
        asked = key;
        ask(state, latent.name, sign);
      },
    };
  };
})();
