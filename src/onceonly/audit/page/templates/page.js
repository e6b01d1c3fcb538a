"use strict";
(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
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

  const time = (ms) => (ms ? new Date(ms).toISOString().replace("T", " ").replace(/\.\d+Z/, " UTC") : null);
  const told = (known, epochs, at) => {
    const number = epochs.number[at];
    const pairs = [["rows", epochs.rows[at]?.toLocaleString("en")], ["up to", epochs.up_to[at]]];
    pairs.push(["planned", time(epochs.began_ms[at])], ["recorded", time(epochs.ended_ms[at])]);
    pairs.push(["batch", epochs.batch[at]], ["chain", epochs.chain[at]], ["adoption", epochs.adoption[number]]);
    for (const [sink, outcomes] of Object.entries(epochs.outcome)) {
      const surplus = epochs.surplus[sink][at];
      pairs.push([sink, known.outcomes[outcomes[at]] + (surplus ? `, ${surplus > 0 ? "+" : ""}${surplus} rows` : "")]);
    }
    pairs.push(["findings", epochs.codes[number]?.join(" ")]);
    return pairs.filter(([, value]) => value !== null && value !== undefined);
  };
  for (const reader of document.querySelectorAll("[data-reader]")) {
    const known = facts.pipelines[reader.closest("[data-pipeline]").dataset.pipeline];
    const epochs = known.epoch_columns;
    const input = reader.querySelector("input");
    const list = reader.querySelector("dl");
    const show = () => {
      const at = Number(input.value) - epochs.number[0];
      const pairs = Number.isInteger(at) && at in epochs.number ? told(known, epochs, at) : [["epoch", "not one of this pipeline"]];
      list.replaceChildren(...pairs.flatMap(([label, value]) => {
        const [term, text] = [document.createElement("dt"), document.createElement("dd")];
        term.textContent = label;
        text.textContent = value;
        return [term, text];
      }));
    };
    input.addEventListener("input", show);
    for (const button of reader.querySelectorAll("[data-step]")) {
      button.addEventListener("click", () => { if (button.dataset.step > 0) input.stepUp(); else input.stepDown(); show(); });
    }
    show();
  }
})();
