/* Controls of do(): a slider in the variable's own units, a switch, or a list; and the inspector,
   the graph with the controls of the chosen and of all set variables. */
"use strict";

(() => {
  const { h } = page;
  const WIDEST = 420; // pixels of a graph that fits beside the pictures; a wider one is above them
  const BEYOND = 0.25; // of the training range that a slider goes beyond it on either side

  /* One variable's control. Returns {element, update(setting, present, warning)}. */
  function control(run, variable) {
    const decimals = page.decimals(variable.high - variable.low);
    const grid = page.api.exported ? (page.api.grid[run.id] || {})[variable.name] || [] : null;
    const name = variable.name;
    const word = (code) => variable.categories[code] ?? String(code);
    let sliding = false;
    let present = null;

    /* The first movement of a slide is a step of the history, the others replace it. */
    const slide = (value) => {
      page.setDo(name, value, { push: !sliding });
      sliding = true;
    };
    const settle = () => (sliding = false);

    const reset = h("button", {
      class: "plain push",
      text: "Reset",
      "aria-label": `Reset ${name}`,
      on: { click: () => page.setDo(name, null) },
    });
    const warning = h("p", { class: "warning", role: "status" });
    const body =
      variable.kind === "continuous"
        ? continuous()
        : (variable.codes.length || 2) <= 2
          ? binary()
          : categorical();
    const element = h(
      "section",
      { class: "control", "data-control": name, "aria-label": `Control of ${name}` },
      h(
        "div",
        { class: "title" },
        h("span", { class: "name" }, name, " ", h("span", { class: "unit", text: variable.unit })),
        reset,
      ),
      body.elements,
      warning,
    );

    function continuous() {
      const slider = h("input", {
        type: "range",
        "aria-label": variable.unit ? `${name} in ${variable.unit}` : name,
      });
      const field = h("input", { type: "number", step: "any", "aria-label": `Value of ${name}` });
      const trained = h("span", { class: "trained" });
      const mark = h("span", { class: "present" });
      const ends = h("div", { class: "ends" });
      const now = h("span", { class: "small faint numeric" });
      let mode = "set";
      const buttons = ["set", "add"].map((each) =>
        h("button", {
          type: "button",
          text: each === "set" ? "Set to" : "Shift by",
          on: { click: () => switchMode(each) },
        }),
      );
      const range = variable.high - variable.low || 1;
      const step = 10 ** -decimals;

      function limits() {
        if (grid) return [0, Math.max(0, grid.length - 1)];
        const [low, high] =
          mode === "add"
            ? [-range / 2, range / 2]
            : [variable.low - BEYOND * range, variable.high + BEYOND * range];
        return [Math.floor(low / step) * step, Math.ceil(high / step) * step]; // values are multiples of the step
      }
      const place = (value) => {
        const [low, high] = grid ? [grid[0], grid[grid.length - 1]] : limits();
        return `${100 * Math.min(1, Math.max(0, (value - low) / (high - low || 1)))}%`;
      };
      const wrap = (value) => (mode === "add" ? { add: value } : value);

      function switchMode(next) {
        mode = next;
        const value = page.state.do[name];
        if (value === undefined) update(undefined, present, "");
        else
          page.setDo(
            name,
            next === "add" ? { add: 0 } : Number((present ?? variable.mean).toFixed(decimals)),
          );
      }

      slider.addEventListener("input", () =>
        slide(
          grid ? grid[Number(slider.value)] : wrap(Number(Number(slider.value).toFixed(decimals))),
        ),
      );
      slider.addEventListener("change", settle);
      field.addEventListener("change", () => {
        if (field.value.trim() === "") page.setDo(name, null);
        else if (Number.isFinite(Number(field.value))) page.setDo(name, wrap(Number(field.value)));
      });

      function update(setting) {
        if (setting !== undefined) mode = typeof setting === "object" ? "add" : "set";
        buttons.forEach((button, k) =>
          button.setAttribute("aria-pressed", String((k === 1) === (mode === "add"))),
        );
        const [low, high] = limits();
        page.set(slider, { min: low, max: high, step: grid ? 1 : step });
        const value =
          setting === undefined
            ? mode === "add"
              ? 0
              : present
            : mode === "add"
              ? setting.add
              : setting;
        const index =
          grid && grid.length && value !== null
            ? grid.reduce(
                (best, each, k) =>
                  Math.abs(each - value) < Math.abs(grid[best] - value) ? k : best,
                0,
              )
            : 0;
        slider.value = grid ? index : (value ?? (low + high) / 2);
        if (document.activeElement !== field || setting !== undefined) {
          field.value = setting === undefined ? "" : Number(value.toFixed(6));
        }
        field.placeholder =
          setting === undefined && value !== null ? page.number(value, decimals) : "";
        const shown =
          setting === undefined ? null : mode === "add" ? (present ?? 0) + value : value;
        slider.setAttribute(
          "aria-valuetext",
          setting === undefined
            ? `not set, ${page.valueText(variable, present, true)} in this picture`
            : mode === "add"
              ? `shifted by ${page.number(value, decimals)}`
              : page.valueText(variable, value, true),
        );
        const base = mode === "add" ? (present ?? 0) : 0;
        trained.hidden = mode === "add" && present === null;
        trained.style.left = place(variable.low - base);
        trained.style.width = `calc(${place(variable.high - base)} - ${place(variable.low - base)})`;
        mark.hidden = present === null;
        mark.style.left = place(mode === "add" ? 0 : present);
        now.textContent = [
          grid && setting !== undefined && `set to ${page.valueText(variable, setting)}`,
          present !== null && `now ${page.valueText(variable, present)}`,
        ]
          .filter(Boolean)
          .join(", ");
        const [first, last] = grid ? [grid[0], grid[grid.length - 1]] : [low, high];
        page.replace(
          ends,
          h("span", {
            text: mode === "add" ? page.signed(low, decimals) : page.number(first, decimals),
          }),
          h("span", {
            text: `trained on ${page.valueText(variable, variable.low)} to ${page.valueText(variable, variable.high)}`,
          }),
          h("span", {
            text: mode === "add" ? page.signed(high, decimals) : page.number(last, decimals),
          }),
        );
        return shown !== null && variable.known_range !== false
          ? page.outside(variable, shown)
          : "";
      }
      return {
        update,
        focus: () => slider.focus(),
        elements: [
          h(
            "div",
            { class: "value-row" },
            page.api.exported
              ? null
              : h(
                  "div",
                  { class: "segments", role: "group", "aria-label": "Kind of intervention" },
                  buttons,
                ),
            page.api.exported ? null : field,
            now,
          ),
          h("div", { class: "slider" }, h("div", { class: "track" }, trained, mark), slider),
          ends,
        ],
      };
    }

    function binary() {
      const group = `switch-${run.id}-${name}`;
      const codes = variable.codes.length ? variable.codes : [0, 1];
      const inputs = codes.map((code) =>
        h("input", {
          type: "radio",
          name: group,
          value: code,
          on: { change: () => page.setDo(name, code) },
        }),
      );
      const now = h("p", { class: "small faint" });
      return {
        focus: () => inputs[0].focus(),
        update(setting) {
          inputs.forEach((input, k) => (input.checked = codes[k] === setting));
          now.textContent =
            present === null ? "" : `now ${page.valueText(variable, Math.round(present))}`;
          return "";
        },
        elements: [
          h(
            "div",
            { class: "switch", role: "radiogroup", "aria-label": name },
            inputs.map((input, k) => h("label", {}, input, word(codes[k]))),
          ),
          now,
        ],
      };
    }

    function categorical() {
      const select = h("select", {
        "aria-label": name,
        on: { change: () => page.setDo(name, select.value === "" ? null : Number(select.value)) },
      });
      return {
        focus: () => select.focus(),
        update(setting) {
          const code = present === null ? null : Math.round(present);
          page.replace(
            select,
            h("option", {
              value: "",
              text: code === null ? "not set" : `not set (${word(code)} in this picture)`,
            }),
            variable.codes.map((each) => h("option", { value: each, text: word(each) })),
          );
          select.value = setting ?? "";
          return "";
        },
        elements: [select],
      };
    }

    return {
      element,
      focus: body.focus,
      update(setting, value, serverWarning) {
        present = value ?? null;
        const own = body.update(setting);
        const text =
          own || (setting !== undefined && serverWarning ? `${name} ${serverWarning}.` : "");
        warning.textContent = text;
        warning.hidden = !text;
        element.classList.toggle("set", setting !== undefined);
        reset.disabled = setting === undefined;
      },
    };
  }

  /* Graph, controls and reset. `extra` holds further elements for the head of the controls. */
  page.inspector = (run, options = {}) => {
    const variables = new Map(run.variables.map((variable) => [variable.name, variable]));
    const controls = new Map();
    const list = h("div", { class: "controls" });
    const hint = h("p", { class: "small faint" });
    const resetAll = h("button", {
      class: "plain push",
      text: "Reset all",
      on: { click: () => page.change({ do: {} }) },
    });
    let presents = {};
    let warnings = {};

    const choose = (name, focus = true) => {
      if (!variables.has(name)) {
        page.announce(`${name} cannot be set.`);
        return;
      }
      page.change({ node: name }, { push: false });
      if (focus) controls.get(name)?.focus();
    };
    const graph = run.graph
      ? page.graphView(run.graph, { onChoose: choose, settable: (name) => variables.has(name) })
      : null;
    const chips = graph
      ? null
      : run.variables.map((variable) =>
          h("button", {
            class: "chip",
            text: variable.name,
            on: { click: () => choose(variable.name) },
          }),
        );

    const compared = run.graph?.compared ? legendCompared(run.graph) : null;
    const graphCard = h(
      "section",
      { class: "card graph-card", "aria-label": "Graph" },
      h("header", {}, h("h2", { text: graph ? "Causal graph" : "Variables" }), compared),
      graph ? h("div", { class: "graph-box" }, graph.element) : h("div", { class: "chips" }, chips),
      graph
        ? h(
            "div",
            { class: "legend" },
            h("span", { class: "l-set" }, h("i"), "set by do()"),
            h("span", { class: "l-affected" }, h("i"), "affected"),
            h("span", { class: "l-cut" }, h("i"), "cut"),
          )
        : null,
    );
    const doCard = h(
      "section",
      { class: "card do-card", "aria-label": "Interventions" },
      h("header", {}, h("h2", { text: "Interventions" }), resetAll),
      options.extra,
      hint,
      list,
      page.api.exported
        ? h("p", {
            class: "small faint",
            text: "This is an export: one variable at a time, at the values that were computed.",
          })
        : null,
    );

    function update(state) {
      const names = Object.keys(state.do);
      const shown = [...new Set([...names, state.node].filter((name) => variables.has(name)))];
      const hard = new Set(names.filter((name) => typeof state.do[name] !== "object"));
      const soft = new Set(names.filter((name) => typeof state.do[name] === "object"));
      graph?.update({ chosen: state.node, hard, soft });
      chips?.forEach((chip, k) => {
        const { name } = run.variables[k];
        chip.classList.toggle("set", name in state.do);
        chip.setAttribute("aria-pressed", String(name === state.node));
      });
      for (const name of shown) {
        if (!controls.has(name)) controls.set(name, control(run, variables.get(name)));
        controls.get(name).update(state.do[name], presents[name], warnings[name]);
      }
      const order = run.variables
        .map((variable) => variable.name)
        .filter((name) => shown.includes(name));
      const elements = order.map((name) => controls.get(name).element);
      if (
        elements.length !== list.children.length ||
        elements.some((each, k) => list.children[k] !== each)
      ) {
        page.replace(list, elements);
      }
      hint.hidden = shown.length > 0;
      hint.textContent = graph
        ? "Choose a variable in the graph to set it."
        : "Choose a variable to set it.";
      resetAll.disabled = names.length === 0;
    }

    return {
      element: h("div", { class: "stack inspector" }, graphCard, doCard),
      wide: Boolean(run.graph && run.graph.width > WIDEST),
      update,
      /* presents: name -> value in the picture; warnings: name -> text of the server */
      inform(values, texts) {
        presents = values;
        warnings = texts || {};
        update(page.state);
      },
    };
  };

  /* How the graph differs from the simulator's. */
  function legendCompared(graph) {
    const undirected = graph.edges.filter((edge) => edge.directed === false).length;
    const count = (kind) =>
      graph.edges.filter((edge) => edge.kind === kind && (edge.directed !== false || kind === "wrong"))
        .length;
    const parts = [
      ["missing", "missing"],
      ["wrong", "wrong"],
      ["reversed", "reversed"],
    ]
      .map(([kind, word]) => [count(kind), word])
      .filter(([n]) => n)
      .map(([n, word]) => `${n} ${word}`);
    if (undirected) parts.push(`${undirected} without a direction`);
    return h("p", {
      text: parts.length
        ? `against the true graph: ${parts.join(", ")}`
        : "equal to the true graph",
    });
  }
})();
