/* The causal graph as SVG: nodes are buttons; set nodes have their incoming edges cut and their
   descendants lit. Positions and curves come from the library's own layout. */
"use strict";

(() => {
  const { svg } = page;
  const HEAD = 9; // pixels, length of an arrow head
  const MOST_LABELS = 14; // edges up to which strengths are printed
  const KINDS = new Set(["missing", "wrong", "reversed"]);

  function title(edge) {
    if (edge.kind === "missing")
      return `${edge.cause} causes ${edge.effect} in truth; the model has no such edge`;
    const strength = edge.label ? `, strength ${edge.label}` : "";
    const verdict = KINDS.has(edge.kind) ? ` (${edge.kind})` : "";
    if (edge.directed === false)
      return `${edge.cause} and ${edge.effect} are linked${strength}; the data do not decide the direction, do() takes ${edge.cause} as the cause`;
    return `${edge.cause} causes ${edge.effect}${strength}${verdict}`;
  }

  /* Names reachable from `sources` along edges that are not cut by do(). */
  page.descendants = (edges, sources, hard) => {
    const reached = new Set();
    const queue = [...sources];
    while (queue.length) {
      const name = queue.pop();
      for (const edge of edges) {
        if (edge.cause !== name || hard.has(edge.effect) || reached.has(edge.effect)) continue;
        reached.add(edge.effect);
        queue.push(edge.effect);
      }
    }
    return reached;
  };

  /* graph: {width, height, nodes: [{name, x, y, width, height}], edges: [{cause, effect, path}]}.
     options: onChoose(name), settable(name). Returns {element, update}. */
  page.graphView = (graph, options) => {
    const root = svg("svg", {
      class: "graph",
      viewBox: `0 0 ${graph.width} ${graph.height}`,
      width: graph.width,
      height: graph.height,
      role: "group",
      "aria-label": "Causal graph. Each variable is a button that opens its control.",
    });
    const own = graph.edges.filter((edge) => edge.kind !== "missing"); // the model's edges
    const labels = graph.edges.length <= MOST_LABELS;
    const placed = Object.assign([], { labels: svg("g") }); // points of the printed strengths, and the texts
    const edges = graph.edges.map((edge) => drawEdge(root, edge, labels ? placed : null));
    root.append(placed.labels); // above all edges
    const nodes = graph.nodes.map((node, index) => drawNode(root, node, index));

    function drawNode(parent, node, index) {
      const canSet = options.settable(node.name);
      const label = svg("text", {
        x: node.x + node.width / 2,
        y: node.y + node.height / 2,
        text: node.name,
      });
      const group = svg(
        "g",
        {
          class: canSet ? "node" : "node fixed",
          "data-node": node.name,
          role: "button",
          tabindex: index === 0 ? 0 : -1,
          on: {
            click: () => choose(index),
            keydown: (event) => onKey(event, index),
          },
        },
        svg("rect", {
          class: "halo",
          x: node.x - 4,
          y: node.y - 4,
          width: node.width + 8,
          height: node.height + 8,
          rx: 11,
        }),
        svg("rect", {
          class: "box",
          x: node.x,
          y: node.y,
          width: node.width,
          height: node.height,
          rx: 7,
        }),
        label,
      );
      parent.append(group);
      return { ...node, group, label, canSet };
    }

    function choose(index) {
      nodes.forEach((node, k) => node.group.setAttribute("tabindex", k === index ? 0 : -1));
      options.onChoose(nodes[index].name);
    }

    function onKey(event, index) {
      const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        choose(index);
      } else if (steps[event.key]) {
        event.preventDefault();
        const next = (index + steps[event.key] + nodes.length) % nodes.length;
        nodes.forEach((node, k) => node.group.setAttribute("tabindex", k === next ? 0 : -1));
        nodes[next].group.focus();
      }
    }

    /* state: chosen name, hard and soft names (sets) */
    function update({ chosen, hard, soft }) {
      const lit = page.descendants(own, [...hard, ...soft], hard);
      for (const node of nodes) {
        const isSet = hard.has(node.name) || soft.has(node.name);
        const affected = !isSet && lit.has(node.name);
        node.group.classList.toggle("set", isSet);
        node.group.classList.toggle("affected", affected);
        node.group.classList.toggle("chosen", node.name === chosen);
        node.group.setAttribute("aria-pressed", String(node.name === chosen));
        const notes = [
          node.name,
          hard.has(node.name) && "set by do, its causes are cut off",
          soft.has(node.name) && "shifted by do",
          affected && "affected",
        ];
        node.group.setAttribute("aria-label", notes.filter(Boolean).join(", "));
      }
      for (const edge of edges) {
        if (edge.kind === "missing") continue;
        const cut = hard.has(edge.effect);
        const from = hard.has(edge.cause) || soft.has(edge.cause) || lit.has(edge.cause);
        edge.group.classList.toggle("cut", cut);
        edge.group.classList.toggle("lit", !cut && from);
        edge.label?.classList.toggle("cut", cut);
      }
    }

    return { element: root, update };
  };

  /* An edge with its arrow head, and the mark that do() cuts it. */
  function drawEdge(root, edge, placed) {
    const line = svg("path", { class: "line", d: edge.path });
    const group = svg(
      "g",
      {
        class: `edge ${KINDS.has(edge.kind) ? edge.kind : ""}`,
        "data-cause": edge.cause,
        "data-effect": edge.effect,
      },
      svg("title", { text: title(edge) }),
      line,
    );
    root.append(group);
    const length = line.getTotalLength ? line.getTotalLength() : 0;
    if (!length) return { ...edge, group, label: null };
    const tip = line.getPointAtLength(length);
    const before = line.getPointAtLength(Math.max(0, length - HEAD));
    const angle = Math.atan2(tip.y - before.y, tip.x - before.x);
    if (edge.directed !== false) {
      const corner = (turn) =>
        `${tip.x - HEAD * Math.cos(angle + turn)},${tip.y - HEAD * Math.sin(angle + turn)}`;
      group.append(
        svg("polygon", {
          class: "head",
          points: `${tip.x},${tip.y} ${corner(0.4)} ${corner(-0.4)}`,
        }),
      );
    }
    let label = null;
    if (placed && edge.label) {
      const free = (point) =>
        placed.every(
          (other) => Math.abs(point.x - other.x) > 28 || Math.abs(point.y - other.y) > 13,
        );
      const points = [0.36, 0.24, 0.48, 0.14, 0.58].map((share) =>
        line.getPointAtLength(length * share),
      );
      const at = points.find(free) || points[0];
      placed.push(at);
      label = svg("text", { class: "strength", x: at.x, y: at.y, text: edge.label });
      placed.labels.append(label);
    }
    const middle = line.getPointAtLength(length * 0.68);
    group.append(
      svg(
        "g",
        { class: "scissors" },
        svg("circle", { cx: middle.x, cy: middle.y, r: 7 }),
        svg("path", { d: `M${middle.x - 3} ${middle.y - 3}l6 6m0 -6l-6 6` }),
      ),
    );
    return { ...edge, group, label };
  }
})();
