(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const time = (ms) => (ms ? new Date(ms).toISOString().replace("T", " ").replace(/\.\d+Z/, " UTC") : null);
  const moment = (at, unit) => (at === null ? null : unit === "ms" && Math.abs(at) <= 8.64e15 ? time(at) : at.toLocaleString("en"));
  const told = (known, epochs, at) => {
    const number = epochs.number[at];
    const pairs = [["rows", epochs.rows[at]?.toLocaleString("en")], ["up to", epochs.up_to[at]]];
    pairs.push(["planned", time(epochs.began_ms[at])], ["recorded", time(epochs.ended_ms[at])]);
    pairs.push(["batch", epochs.batch[at]], ["chain", epochs.chain[at]], ["adoption", epochs.adoption[number]]);
    if (epochs.time) {
      const { lower, upper, late, unit } = epochs.time;
      pairs.push(["complete through", moment(lower[at], unit)], ["latest row", moment(upper[at], unit)], ["late rows", late[number]]);
    }
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
