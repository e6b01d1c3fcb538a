"use strict";
(() => {
  const root = document.documentElement;
  const say = (text) => { document.getElementById("said").textContent = text; };

  // Light and dark: the reader's system decides until the switch is used.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const themes = { light: "Light", dark: "Dark" };
  const shown = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const name = () => { document.getElementById("theme-name").textContent = themes[shown()]; };
  // A page opened from a file may not be allowed to remember anything.
  try { const kept = localStorage.getItem("onceonly-theme"); if (kept in themes) root.dataset.theme = kept; } catch { /* not remembered */ }
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = shown() === "dark" ? "light" : "dark";
    try { localStorage.setItem("onceonly-theme", root.dataset.theme); } catch { /* not remembered */ }
    name();
  });
  dark.addEventListener("change", name);
  name();
  document.getElementById("print").addEventListener("click", () => print());

  const copied = async (text) => {
    try { await navigator.clipboard.writeText(text); return true; } catch { /* an older way is left */ }
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  };
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const done = await copied(button.dataset.copy);
      button.textContent = done ? "Copied" : "Select it";
      button.classList.toggle("done", done);
      say(done ? "Copied" : "Could not copy");
      button.focus();
      setTimeout(() => { button.textContent = "Copy"; button.classList.remove("done"); }, 1600);
    });
  }

  const tip = document.getElementById("tip");
  document.addEventListener("pointermove", (event) => {
    const mark = event.target.closest?.("[data-tip]");
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.dataset.tip;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
    tip.style.top = `${event.clientY + height + 26 > innerHeight ? event.clientY - height - 12 : event.clientY + 16}px`;
  });

  for (const box of document.querySelectorAll("[data-severity][type=checkbox]")) {
    box.addEventListener("change", () => {
      for (const one of box.closest("section").querySelectorAll(`li[data-severity="${box.dataset.severity}"]`)) one.hidden = !box.checked;
    });
  }
})();
