"use strict";
// A study without a report yet: its latest trials, until the first report is there.

(function () {
  const { on, make, path, text } = live;
  const table = document.getElementById("latest"), LATEST = 20;

  on("report", ({ number, trouble }) => {
    if (trouble) document.getElementById("report-state").textContent = trouble;
    else if (number > 0) location.reload();
  });

  on("progress", async ({ completed, running, failed, read_only }) => {
    const total = completed + running + failed;
    if (read_only) document.getElementById("report-state").textContent = "This study has no report here.";
    else if (!completed) document.getElementById("report-state").textContent = "Nothing learned yet: no trial is completed.";
    else document.getElementById("report-state").textContent = "The report is being drawn; it will be here in a moment.";
    const answer = await fetch(`${path}/trials?offset=${Math.max(0, total - LATEST)}&limit=${LATEST}`).catch(() => null);
    if (!answer || !answer.ok) return;
    const { trials } = await answer.json();
    document.getElementById("no-trials").hidden = trials.length > 0;
    const names = trials.length ? [...Object.keys(trials[0].state), ...Object.keys(trials[0].action)] : [];
    const head = ["number", ...names, "reward", "status"].map((name) => {
      const cell = make("th", {}, name);
      cell.scope = "col";
      return cell;
    });
    const rows = trials.reverse().map(({ number, state, action, reward, status }) => {
      const point = { ...state, ...action };
      const cells = [number, ...names.map((name) => point[name]), reward === null ? "" : reward, status];
      return make("tr", {}, ...cells.map((value) => make("td", { className: typeof value === "number" ? "number" : "" }, text(value))));
    });
    table.replaceChildren(make("thead", {}, make("tr", {}, ...(trials.length ? head : []))), make("tbody", {}, ...rows));
  });
})();
