/* Light or dark before the first paint: the reader's choice, else that of the system. */
"use strict";

(() => {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const read = () => {
    try {
      return localStorage.getItem("intervae-theme");
    } catch {
      return null;
    }
  };
  const apply = () => {
    const chosen = read();
    document.documentElement.dataset.theme = chosen || (system.matches ? "dark" : "light");
    document.documentElement.dataset.choice = chosen || "system";
  };
  apply();
  system.addEventListener("change", apply);

  window.intervaeTheme = {
    /* system -> the other one -> back */
    next() {
      const now = document.documentElement.dataset.theme;
      try {
        const wanted = now === "dark" ? "light" : "dark";
        if ((wanted === "dark") === system.matches) localStorage.removeItem("intervae-theme");
        else localStorage.setItem("intervae-theme", wanted);
        apply();
      } catch {
        document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
      }
    },
  };
})();
