/* Questions to the server, or to the files of a static export; both answer with the same JSON. */
"use strict";

(() => {
  const KEY = "intervae-token";
  const TRIES = 6; // of a request that the server was too busy for

  /* An error whose message is one sentence for the reader. */
  class PageError extends Error {
    constructor(message, status = 0) {
      super(message);
      this.status = status;
    }
  }
  page.PageError = PageError;
  page.png = (data) => (data ? `data:image/png;base64,${data}` : "");

  const wait = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

  /* ---- token ------------------------------------------------------------------------------- */
  function store(kind) {
    try {
      return window[kind];
    } catch {
      return null; // storage is refused, as in some embedded frames
    }
  }
  let token = "";
  page.setToken = (text) => {
    token = text;
    for (const kind of ["sessionStorage", "localStorage"]) {
      try {
        store(kind)?.setItem(KEY, text);
      } catch {
        /* full or refused: the token lasts as long as the page */
      }
    }
  };
  /* Take the token from an address or from what a person pasted; "" if there is none. */
  page.tokenIn = (text) => {
    const found = /token=([\w~.-]+)/.exec(text);
    return found ? found[1] : /^[\w~.-]{8,}$/.test(text.trim()) ? text.trim() : "";
  };
  page.loadToken = () => {
    const fresh = page.tokenIn(location.hash);
    if (fresh) page.setToken(fresh);
    else token = store("sessionStorage")?.getItem(KEY) || store("localStorage")?.getItem(KEY) || "";
  };

  /* ---- server ------------------------------------------------------------------------------ */
  async function request(path, body, options = {}) {
    const headers = { "X-Intervae-Token": token };
    const init = { headers, cache: "no-store" };
    if (body !== undefined) {
      headers["Content-Type"] = "application/json";
      Object.assign(init, { method: "POST", body: JSON.stringify(body) });
    }
    for (let attempt = 1; ; attempt += 1) {
      let response;
      try {
        response = await fetch(path, init);
      } catch {
        page.connection?.lost();
        throw new PageError("The server does not answer.", -1);
      }
      page.connection?.found();
      if (response.status === 503 && attempt < TRIES) {
        page.connection?.busy(true);
        const after = Number(response.headers.get("Retry-After")) || 1;
        await wait(Math.min(5, after) * (0.5 + Math.random() / 2));
        continue;
      }
      page.connection?.busy(false);
      if (options.blob && response.ok) return response.blob();
      let parsed = null;
      try {
        parsed = await response.json();
      } catch {
        /* not JSON: answered by something in between */
      }
      if (response.ok && parsed) return parsed;
      const text = parsed && typeof parsed.error === "string" ? parsed.error : "";
      throw new PageError(
        text || `The server answered with status ${response.status}.`,
        response.status,
      );
    }
  }

  const server = {
    exported: false,
    runs: () => request("api/runs"),
    pictures: (run, start, count) =>
      request(`api/runs/${run}/pictures?start=${start}&count=${count}`),
    pairs: (run, start, count) => request(`api/runs/${run}/pairs?start=${start}&count=${count}`),
    upload: (run, file) => request(`api/runs/${run}/upload`, { file }),
    do: (run, pictures, doing) => request(`api/runs/${run}/do`, { pictures, do: doing }),
    sweep: (run, body) => request(`api/runs/${run}/sweep`, body),
    compare: (body) => request("api/compare", body),
    act: (run, body) => request(`api/runs/${run}/act`, body),
    attribute: (run, body) => request(`api/runs/${run}/attribute`, body),
    clip: (run, body) => request(`api/runs/${run}/clip`, body),
    findings: (run) => request(`api/runs/${run}/findings`),
    heatMap: (run, body) => request(`api/runs/${run}/heat_map`, body),
    traverse: (run, body) => request(`api/runs/${run}/traverse`, body),
    sample: (run, body) => request(`api/runs/${run}/sample`, body),
    results: () => request("api/results"),
    result: (id) => request(`api/results/${id}`),
    figure: async (id, figure) =>
      URL.createObjectURL(
        await request(`api/results/${id}/figures/${figure.id}`, undefined, { blob: true }),
      ),
    alive: async () => (await fetch("api/status", { cache: "no-store" })).ok,
  };

  /* ---- static export ----------------------------------------------------------------------- */
  function exported(manifest) {
    const loads = new Map(); // key -> promise of its value
    const waiting = new Map(); // key -> function that resolves the promise
    manifest.receive = (key, value) => waiting.get(key)?.(value);
    const load = (key) => {
      if (!loads.has(key)) loads.set(key, read(key));
      return loads.get(key);
    };
    const read = (key) => {
      const file = manifest.files[key];
      if (!file) {
        return Promise.reject(
          new PageError(
            "This view is not part of the export; `intervae serve` on the run shows it.",
          ),
        );
      }
      return new Promise((resolve, reject) => {
        waiting.set(key, resolve);
        const script = page.h("script", { src: file });
        script.onerror = () => reject(new PageError(`The file ${file} of the export is missing.`));
        document.head.append(script);
      });
    };
    const nearest = (values, value) =>
      values.reduce(
        (best, each, k) => (Math.abs(each - value) < Math.abs(values[best] - value) ? k : best),
        0,
      );
    const name = (doing) => Object.keys(doing)[0] || "";

    async function answer(kind, run, index, doing) {
      const base = await load(`${kind}/${run}/${index}/`);
      const variable = name(doing);
      if (!variable) return base;
      const grid = await load(`${kind}/${run}/${index}/${variable}`);
      const value = doing[variable];
      const code = typeof value === "string" ? category(run, variable, value) : value;
      const found = grid.answers[nearest(grid.values, code)];
      if (!found)
        throw new PageError(`The model gives no answer for ${variable} = ${page.number(code)}.`);
      return found;
    }
    function category(run, variable, word) {
      const found = manifest.runs.find((each) => each.id === run);
      const entry = found.variables.find((each) => each.name === variable);
      return entry ? entry.categories.indexOf(word) : 0;
    }
    const slice = (page_, key, start, count) => ({
      ...page_,
      start,
      [key]: page_[key].slice(start, start + count),
    });

    return {
      exported: true,
      grid: manifest.grid || {},
      /* The computed value that is nearest to one that was asked for. */
      snap: (run, variable, value) => {
        const values = (manifest.grid[run] || {})[variable] || [];
        return values.length ? values[nearest(values, value)] : value;
      },
      runs: async () => ({
        version: manifest.version,
        runs: manifest.runs,
        results: manifest.results?.results.length || 0,
      }),
      pictures: async (run, start, count) =>
        slice(manifest.pictures[run], "pictures", start, count),
      indices: (run) => manifest.pictures[run].pictures.map((picture) => picture.index),
      pairs: async (run, start, count) => slice(manifest.pairs[run], "pairs", start, count),
      do: async (run, pictures, doing) => {
        const parts = await Promise.all(
          pictures.map(({ index }) => answer("do", run, index, doing)),
        );
        return { ...parts[0], answers: parts.map((part) => part.answers[0]) };
      },
      sweep: async (run, { picture, variable }) => {
        const grid = await load(`do/${run}/${picture.index}/${variable}`);
        const known = grid.answers.flatMap((part, k) => (part ? [k] : [])); // null: the model refused the value
        const values = known.map((k) => grid.values[k]);
        const first = known.map((k) => grid.answers[k].answers[0]);
        const measured = {};
        first.forEach((part, k) =>
          part.values.forEach((value) => {
            (measured[value.name] ||= [])[k] = value.after;
          }),
        );
        return {
          run,
          variable,
          values,
          measured,
          texts: first.map(
            (part, k) =>
              part.values.find((v) => v.name === variable)?.after_text ?? page.number(values[k]),
          ),
          frames: first.map((part) => part.counterfactual),
          truth: first.every((part) => part.truth) ? first.map((part) => part.truth) : null,
          pixel_mae: first.every((part) => part.errors)
            ? first.map((part) => part.errors.pixel_mae)
            : null,
          code: grid.answers[known[0]]?.code,
        };
      },
      act: async (run, { picture, action, times }) => {
        const all = await load(`act/${run}/${picture.index}/${action}`);
        return {
          ...all,
          pictures: all.pictures.slice(0, times),
          changes: all.changes.slice(0, times),
        };
      },
      attribute: (run, { pair }) => load(`attribute/${run}/${pair}`),
      clip: (run, { picture, do: doing }) => answer("clip", run, picture.index, doing),
      findings: (run) => load(`findings/${run}`),
      heatMap: async (run, { pictures, latent }) => {
        const parts = await Promise.all(
          pictures.map(({ index }) => load(`heat_map/${run}/${index}/${latent}`)),
        );
        const join = (key) => parts.flatMap((part) => part[key]);
        return {
          ...parts[0],
          overlays: join("overlays"),
          maps: join("maps"),
          pictures: join("pictures"),
        };
      },
      traverse: (run, { picture, latent }) => load(`traverse/${run}/${picture.index}/${latent}`),
      results: async () => manifest.results || { results: [] },
      result: (id) => load(`results/${id}`),
      figure: async (_, figure) => page.png(figure.png),
      alive: async () => true,
    };
  }

  page.api = window.INTERVAE_EXPORT ? exported(window.INTERVAE_EXPORT) : server;
})();
