/* A sweep: one variable over its training range, as an animation and as a film. */
"use strict";

(() => {
  const { h, svg } = page;
  const FRAME = 220; // milliseconds of one frame
  const COUNT = 15;

  /* A picture that plays through frames, with a slider. frames: [{source, truth, text}]. */
  page.player = () => {
    const picture = h("img", { class: "picture", alt: "" });
    const second = h("img", { class: "picture", alt: "" });
    const secondBox = h("figure", { class: "figure" }, h("figcaption", { text: "Truth" }), second);
    const slider = h("input", { type: "range", min: 0, step: 1, value: 0, "aria-label": "Frame" });
    const text = h("output", { class: "small numeric" });
    const button = h("button", {
      class: "main",
      text: "Play",
      on: { click: () => (timer ? stop() : play()) },
    });
    const film = h("div", {
      class: "film",
      tabindex: 0,
      role: "group",
      "aria-label": "All frames",
    });
    let frames = [];
    let onFrame = () => {};
    let timer = 0;
    let direction = 1;

    function show(k) {
      if (!frames.length) return;
      const at = Math.max(0, Math.min(frames.length - 1, k));
      slider.value = at;
      picture.src = frames[at].source;
      picture.alt = frames[at].text;
      if (frames[at].truth) second.src = frames[at].truth;
      text.textContent = frames[at].text;
      [...film.children].forEach((each, j) => each.classList.toggle("now", j === at));
      onFrame(at);
    }
    function play() {
      if (frames.length < 2) return;
      button.textContent = "Pause";
      timer = setInterval(() => {
        if (!picture.isConnected) return stop();
        let next = Number(slider.value) + direction;
        if (next >= frames.length || next < 0) {
          direction = -direction;
          next = Number(slider.value) + direction;
        }
        return show(next);
      }, FRAME);
    }
    function stop() {
      clearInterval(timer);
      timer = 0;
      button.textContent = "Play";
    }
    slider.addEventListener("input", () => {
      stop();
      show(Number(slider.value));
    });
    return {
      picture,
      secondBox,
      slider,
      text,
      button,
      film,
      play,
      stop,
      get playing() {
        return Boolean(timer);
      },
      load(next, listener) {
        frames = next;
        onFrame = listener || (() => {});
        slider.max = Math.max(0, frames.length - 1);
        secondBox.hidden = !frames.some((frame) => frame.truth);
        page.replace(
          film,
          frames.map((frame) =>
            h("figure", {}, h("img", { class: "picture", src: frame.source, alt: "" }), frame.text),
          ),
        );
        show(Math.min(Number(slider.value), frames.length - 1));
      },
      start(k) {
        show(k);
      },
    };
  };

  /* Lines of the variables that a sweep changes, each over its own range. */
  function curves(run, answer) {
    const W = 520,
      H = 110,
      L = 0,
      R = 0,
      T = 0,
      B = 0;
    const moved = Object.entries(answer.measured || {}).filter(
      ([name, values]) =>
        name !== answer.variable &&
        values.every((v) => v !== null) &&
        spread(run, name, values) > 0.02,
    );
    if (!moved.length || answer.values.length < 2) return null;
    const x = (k) => L + ((W - L - R) * k) / (answer.values.length - 1);
    const root = svg("svg", {
      viewBox: `0 0 ${W} ${H}`,
      class: "curves",
      role: "img",
      "aria-label": `Measured by the model while ${answer.variable} moves: ${moved.map(([name]) => name).join(", ")}`,
    });
    const cursor = svg("line", { class: "cursor", y1: T, y2: H - B });
    root.append(
      svg("rect", { class: "frame", x: L, y: T, width: W - L - R, height: H - T - B }),
      cursor,
    );
    const legend = h("div", { class: "legend" });
    moved.slice(0, 5).forEach(([name, values], k) => {
      const low = Math.min(...values),
        high = Math.max(...values);
      const y = (v) => H - B - 6 - ((H - T - B - 12) * (v - low)) / (high - low || 1);
      root.append(
        svg("path", {
          class: `line series-${k}`,
          d: values.map((v, j) => `${j ? "L" : "M"}${x(j)} ${y(v)}`).join(""),
        }),
      );
      const variable = run.variables.find((each) => each.name === name);
      legend.append(
        h(
          "span",
          {},
          h("i", { class: `series-${k}` }),
          `${name} `,
          h("span", {
            class: "numeric",
            text: `${page.valueText(variable, low)} to ${page.valueText(variable, high, true)}`,
          }),
        ),
      );
    });
    return {
      element: h("div", {}, root, legend),
      at(k) {
        page.set(cursor, { x1: x(k), x2: x(k) });
      },
    };
  }
  function spread(run, name, values) {
    const variable = run.variables.find((each) => each.name === name);
    const range = variable ? variable.high - variable.low : 1;
    return (Math.max(...values) - Math.min(...values)) / (range || 1);
  }

  /* The card. Returns {element, update(state)}: it computes when asked to play, then follows. */
  page.sweepCard = (run) => {
    const select = h(
      "select",
      {
        "aria-label": "Variable of the sweep",
        on: { change: () => page.change({ sweep: select.value }, { push: false }) },
      },
      run.variables.map((variable) => h("option", { value: variable.name, text: variable.name })),
    );
    const player = page.player();
    const error = h("div", { class: "under" });
    const plot = h("div");
    const message = h("p", {
      class: "small faint",
      text: "Play moves one variable over its training range; the other interventions hold.",
    });
    const body = h(
      "div",
      { class: "sweep", hidden: true },
      h(
        "div",
        { class: "figures two" },
        h(
          "figure",
          { class: "figure do" },
          h("figcaption", { text: "Model" }),
          player.picture,
          error,
        ),
        player.secondBox,
      ),
      h("div", {}, h("div", { class: "player-line" }, player.slider, player.text), plot),
    );
    const film = h("div", { class: "film-box", hidden: true }, player.film);
    const begin = h("button", { class: "main", text: "Play", on: { click: () => ask(true) } });
    player.button.hidden = true;
    let active = false;
    let asked = "";

    const load = page.latest(async (state, key, autoplay) => {
      try {
        const name = select.value;
        const others = Object.fromEntries(
          Object.entries(state.do).filter(([each]) => each !== name),
        );
        const answer = await page.api.sweep(run.id, {
          picture: page.pictureOf(state, run),
          do: others,
          variable: name,
          values: null,
          count: COUNT,
        });
        asked = key;
        active = true;
        const drawing = curves(run, answer);
        page.replace(plot, drawing?.element);
        const variable = run.variables.find((each) => each.name === name);
        player.load(
          answer.frames.map((frame, k) => ({
            source: page.png(frame),
            truth: answer.truth ? page.png(answer.truth[k]) : "",
            text: `${name} = ${page.valueText(variable, answer.values[k], true)}`,
          })),
          (k) => {
            drawing?.at(k);
            error.textContent = answer.pixel_mae
              ? `pixel MAE ${page.number(answer.pixel_mae[k], 4)}`
              : "";
          },
        );
        [...player.film.children].forEach(
          (each, k) => (each.lastChild.textContent = page.valueText(variable, answer.values[k])),
        );
        body.hidden = film.hidden = player.button.hidden = false;
        begin.hidden = message.hidden = true;
        if (autoplay && !player.playing) player.play();
      } catch (problem) {
        message.hidden = false;
        message.textContent = problem.message;
      }
    });
    const keyOf = (state) =>
      JSON.stringify([
        state.picture,
        page.upload?.number,
        select.value,
        Object.entries(state.do).filter(([name]) => name !== select.value),
      ]);
    const ask = (autoplay) => load(page.state, keyOf(page.state), autoplay);
    let timer = 0;

    return {
      element: h(
        "section",
        { class: "card", "aria-label": "Sweep" },
        h("header", {}, h("h2", { text: "Sweep" }), select, begin, player.button),
        message,
        body,
        film,
      ),
      update(state) {
        const names = run.variables.map((variable) => variable.name);
        const wanted = [state.sweep, state.node, ...Object.keys(state.do)].find((name) =>
          names.includes(name),
        );
        if (wanted) select.value = wanted;
        clearTimeout(timer);
        if (active && keyOf(state) !== asked) timer = setTimeout(() => ask(false), 250);
      },
    };
  };
})();
