/* The tables of results/: our numbers beside the paper's, sortable, with their figures. */
"use strict";

(() => {
  const { h } = page;

  /* A table that sorts by the column whose head is pressed.
     columns: [{name, number, value(row), cell(row)}]. */
  page.sortable = ({ caption, columns, rows, empty = "" }) => {
    const body = h("tbody");
    const heads = columns.map((column, k) =>
      h(
        "th",
        { scope: "col", class: column.number ? "n" : "", "aria-sort": "none" },
        h("button", { class: "sort", text: column.name, on: { click: () => sort(k) } }),
      ),
    );
    let by = -1;
    let up = true;
    const missing = (value) => value === null || value === undefined || value === "";
    function sort(k) {
      up = k === by ? !up : !columns[k].number;
      by = k;
      heads.forEach((head, j) =>
        head.setAttribute("aria-sort", j !== by ? "none" : up ? "ascending" : "descending"),
      );
      draw();
    }
    function draw() {
      const order = [...rows];
      if (by >= 0) {
        const value = columns[by].value;
        order.sort((a, b) => {
          const [x, y] = [value(a), value(b)];
          if (missing(x) || missing(y)) return missing(x) - missing(y);
          const sign =
            typeof x === "number"
              ? x - y
              : String(x).localeCompare(String(y), "en", { numeric: true });
          return up ? sign : -sign;
        });
      }
      page.replace(
        body,
        order.map((row) =>
          h(
            "tr",
            {},
            columns.map((column) => h("td", { class: column.number ? "n" : "" }, column.cell(row))),
          ),
        ),
        order.length
          ? null
          : h("tr", {}, h("td", { colspan: columns.length, class: "faint", text: empty })),
      );
    }
    draw();
    return h(
      "table",
      {},
      h("caption", { class: "offscreen", text: caption }),
      h("thead", {}, h("tr", {}, heads)),
      body,
    );
  };

  page.resultsView = () => {
    const list = h("ul", { class: "result-list" });
    const detail = h("div", { class: "stack" });
    const element = h(
      "div",
      { class: "columns results" },
      h(
        "section",
        { class: "card", "aria-label": "Tables" },
        h("header", {}, h("h2", { text: "Tables" })),
        list,
      ),
      detail,
    );
    let known = null;
    let shown = null;
    let only = true;
    let words = "";

    async function update(state) {
      try {
        known ||= (await page.api.results()).results;
        if (!known.length) {
          page.replace(
            element,
            h(
              "div",
              { class: "empty" },
              h("b", { text: "There are no results yet." }),
              "`intervae reproduce EXPERIMENT` writes tables to results/.",
            ),
          );
          return;
        }
        const id = known.some((each) => each.id === state.result) ? state.result : known[0].id;
        page.replace(
          list,
          known.map((each) =>
            h(
              "li",
              {},
              h(
                "a",
                {
                  href: page.formatState({ ...page.state, view: "results", result: each.id }),
                  "aria-current": each.id === id ? "true" : null,
                  on: {
                    click: (event) => {
                      event.preventDefault();
                      page.change({ result: each.id });
                    },
                  },
                },
                h("span", { text: each.name }),
                h("span", {
                  class: "small faint",
                  text: `${page.count(each.rows, "row")}, ${each.date || ""}`,
                }),
              ),
            ),
          ),
        );
        if (shown?.id !== id) {
          shown = await page.api.result(id);
          await draw();
        }
      } catch (error) {
        page.replace(detail, h("p", { class: "notice bad", text: error.message }));
      }
    }

    async function draw() {
      const hasPaper = shown.rows.some((row) => row.paper !== null && row.paper !== undefined);
      const toggle = h("input", {
        type: "checkbox",
        checked: only,
        on: {
          change: () => {
            only = toggle.checked;
            draw();
          },
        },
      });
      const figures = h("div", { class: "result-figures" });
      const numbers = h("div", {
        class: "scroll tall",
        tabindex: 0,
        role: "group",
        "aria-label": "Numbers",
      });
      const fillNumbers = () => page.replace(numbers, pivot(shown, hasPaper && only, words));
      const filter = h("input", {
        type: "search",
        placeholder: "Filter rows",
        "aria-label": "Filter rows",
        value: words,
        on: {
          input: () => {
            words = filter.value;
            fillNumbers();
          },
        },
      });
      const csv = h("button", {
        text: "CSV",
        "aria-label": "Download the numbers as CSV",
        on: { click: () => saveCsv(shown) },
      });
      fillNumbers();
      page.replace(
        detail,
        h(
          "section",
          { class: "card", "aria-label": "Table" },
          h(
            "header",
            {},
            h("h2", { text: shown.title || shown.name }),
            h(
              "div",
              { class: "row push" },
              hasPaper
                ? h("label", { class: "row small" }, toggle, "only what the paper reports")
                : null,
              filter,
              csv,
            ),
          ),
          h(
            "p",
            { class: "small faint facts" },
            h("code", { text: shown.command || "" }),
            [shown.date, shown.hardware, shown.revision && `revision ${shown.revision}`]
              .filter(Boolean)
              .map((text) => h("span", { text })),
          ),
          numbers,
        ),
        shown.figures.length
          ? h(
              "section",
              { class: "card", "aria-label": "Figures" },
              h("header", {}, h("h2", { text: "Figures" })),
              figures,
            )
          : null,
      );
      const { id } = shown;
      for (const figure of shown.figures) {
        const source = await page.api.figure(id, figure).catch(() => "");
        if (shown.id !== id) return;
        figures.append(
          h(
            "figure",
            {},
            h("img", { src: source, alt: figure.name }),
            h("figcaption", { class: "small faint", text: figure.name }),
          ),
        );
      }
    }
    return {
      element,
      update,
      retry: () => {
        known = shown = null;
        update(page.state);
      },
    };
  };

  /* One row per data set, model and variant; one column per metric: mean, spread, the paper's. */
  function pivot(result, paperOnly, words) {
    const wanted = (row) => !paperOnly || (row.paper !== null && row.paper !== undefined);
    const metrics = [...new Set(result.rows.filter(wanted).map((row) => row.metric))];
    const groups = new Map();
    for (const row of result.rows) {
      if (!metrics.includes(row.metric)) continue;
      const key = JSON.stringify([row.data, row.model, row.variant]);
      if (!groups.has(key))
        groups.set(key, {
          data: row.data,
          model: row.model,
          variant: row.variant,
          seeds: row.seeds,
          cells: {},
        });
      groups.get(key).cells[row.metric] = row;
    }
    const parts = words.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (group) =>
      parts.every((part) =>
        `${group.data} ${group.model} ${group.variant}`.toLowerCase().includes(part),
      );
    const rows = [...groups.values()].filter(
      (group) => Object.values(group.cells).some(wanted) && matches(group),
    );
    const decimals = (metric) =>
      columnDecimals(
        rows.flatMap((row) => [row.cells[metric]?.mean, row.cells[metric]?.paper]),
      );
    const hasVariant = rows.some((row) => row.variant);
    const names = [
      ["Data", "data"],
      ["Model", "model"],
      ...(hasVariant ? [["Variant", "variant"]] : []),
    ];
    return page.sortable({
      caption: result.name,
      empty: words ? "No row has these words." : "This table has no rows.",
      rows,
      columns: [
        ...names.map(([name, key]) => ({
          name,
          value: (row) => row[key],
          cell: (row) => row[key] || "",
        })),
        ...metrics.map((metric) => ({
          name: metric,
          number: true,
          value: (row) => row.cells[metric]?.mean,
          cell: (row) => cell(row.cells[metric], decimals(metric)),
        })),
        {
          name: "Seeds",
          number: true,
          value: (row) => row.seeds,
          cell: (row) => String(row.seeds ?? ""),
        },
      ],
    });
  }

  function saveCsv(result) {
    const keys = ["data", "model", "variant", "metric", "mean", "std", "paper", "seeds"];
    // a cell that a spreadsheet would take for a formula gets an apostrophe
    const quote = (value) => {
      const text =
        typeof value === "number" ? String(value) : String(value ?? "").replace(/^[=+\-@]/, "'$&");
      return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const lines = [keys, ...result.rows.map((row) => keys.map((key) => row[key]))].map((cells) =>
      cells.map(quote).join(","),
    );
    page.downloadBlob(
      `${page.fileName(result.name)}.csv`,
      new Blob([lines.join("\n")], { type: "text/csv" }),
    );
  }

  /* One number of decimals for a column, so that its digits stand below each other. */
  function columnDecimals(values) {
    const known = values.filter((value) => Number.isFinite(value));
    if (!known.length || known.every(Number.isInteger)) return 0;
    const largest = Math.max(...known.map(Math.abs));
    return Math.min(5, Math.max(0, 2 - Math.floor(Math.log10(largest || 1)) + (largest >= 1)));
  }

  /* A value that these decimals would hide keeps its own. */
  const fixed = (value, decimals, digits = 2) =>
    value && Math.abs(value) < 5 * 10 ** -decimals
      ? page.number(Number(value.toPrecision(digits)))
      : page.number(value, decimals);

  function cell(row, decimals) {
    if (!row) return "";
    const spread = row.std ? ` \u00b1 ${fixed(row.std, decimals, 1)}` : "";
    const paper = row.paper !== null && row.paper !== undefined;
    return h(
      "span",
      {},
      fixed(row.mean, decimals),
      h("span", { class: "faint", text: spread }),
      paper ? h("span", { class: "paper", text: `paper ${fixed(row.paper, decimals)}` }) : null,
    );
  }
})();
