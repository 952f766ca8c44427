/* The view as a value: what is shown, kept in the address after `#`, with back and forward. */
"use strict";

(() => {
  const NUMBERS = new Set([
    "run",
    "times",
    "pair",
    "steps",
    "dim",
    "result",
    "seed",
    "before",
    "after",
  ]);
  const WORDS = new Set(["view", "node", "action", "latent", "sweep", "sign", "map", "compare"]);

  const start = () => ({ picture: 0, do: {} });

  /* "#view=whatif&run=0&picture=12&do.light=40&add.pendulum=5" -> state */
  page.parseState = (hash) => {
    const state = start();
    for (const [key, text] of new URLSearchParams(hash.replace(/^#/, ""))) {
      const value = Number(text);
      if (key.startsWith("do.") && text !== "" && Number.isFinite(value)) {
        state.do[key.slice(3)] = value;
      } else if (key.startsWith("add.") && text !== "" && Number.isFinite(value)) {
        state.do[key.slice(4)] = { add: value };
      } else if (key === "picture") {
        if (text === "upload") state.picture = "upload";
        else if (Number.isInteger(value) && value >= 0) state.picture = value;
      } else if (NUMBERS.has(key) && Number.isInteger(value) && value >= 0) {
        state[key] = value;
      } else if (WORDS.has(key)) {
        state[key] = text;
      }
    }
    return state;
  };

  page.formatState = (state) => {
    const parameters = new URLSearchParams();
    for (const key of ["view", "run", "picture", "node", ...NUMBERS, ...WORDS]) {
      if (parameters.has(key) || state[key] === undefined || state[key] === null) continue;
      parameters.set(key, state[key]);
    }
    for (const [name, value] of Object.entries(state.do)) {
      if (typeof value === "object") parameters.set(`add.${name}`, value.add);
      else parameters.set(`do.${name}`, value);
    }
    return `#${parameters}`;
  };

  page.state = start();
  let render = () => {};

  /* Apply changes; `push` makes a step for the back button, as at the end of a slide. */
  page.change = (changes, { push = true } = {}) => {
    page.state = { ...page.state, ...changes };
    for (const key of Object.keys(page.state)) {
      if (page.state[key] === undefined) delete page.state[key];
    }
    const hash = page.formatState(page.state);
    if (hash !== location.hash) {
      if (push) history.pushState(null, "", hash);
      else history.replaceState(null, "", hash);
    }
    render();
  };

  page.startState = (onChange) => {
    render = onChange;
    page.state = page.parseState(location.hash);
    history.replaceState(null, "", page.formatState(page.state)); // drops a token
    window.addEventListener("popstate", () => {
      const pasted = page.tokenIn(location.hash);
      if (pasted) page.setToken(pasted);
      page.state = page.parseState(location.hash);
      render();
    });
  };

  /* Set a variable to a value, shift it ({add: 5}), or reset it (null). */
  page.setDo = (name, value, options) => {
    const doing = page.api.exported ? {} : { ...page.state.do };
    if (value === null) delete doing[name];
    else doing[name] = value;
    page.change({ do: doing, node: page.state.node }, options);
  };

  page.doText = (run, doing) => {
    const parts = Object.entries(doing).map(([name, value]) => {
      const variable = run.variables.find((each) => each.name === name);
      return typeof value === "object"
        ? `${name} ${page.signed(value.add)}`
        : `${name} = ${page.valueText(variable, value)}`;
    });
    return parts.length ? `do(${parts.join(", ")})` : "";
  };
})();
