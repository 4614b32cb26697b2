"use strict";
// The progress of a study: counts, workers and running trials, as the service reports them.

const live = (function () {
  const study = document.body.dataset.study, path = `/v1/studies/${encodeURIComponent(study)}`;
  const host = document.getElementById("live");
  const make = (tag, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };
  const dot = make("span", { className: "dot" }), state = make("span", { className: "quiet" }, "connecting …");
  state.setAttribute("role", "status");
  const counts = make("span"), notice = make("p", { className: "warning", hidden: true });
  const body = make("tbody"), details = make("details", { id: "running", hidden: true });
  const heads = ["number", "worker", "for", "point"].map((name) => {
    const head = make("th", {}, name);
    head.scope = "col";
    return head;
  });
  const scroll = make("div", { className: "scroll", tabIndex: 0 },
    make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body));
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", "Running trials");
  details.append(make("summary", {}, "Running trials"), scroll);
  host.append(make("p", { className: "pulse" }, make("span", {}, dot, " ", state), counts), notice, details);

  let trials = [];
  const text = (value) => (typeof value === "number" ? String(Number(value.toPrecision(12))) : String(value));

  function showProgress(progress) {
    const workers = progress.workers === 1 ? "worker" : "workers";
    const named = [["completed", "completed"], ["running", "running"], ["failed", "failed"], ["workers", workers]];
    const shown = named.filter(([key]) => progress[key] || key === "completed");
    counts.replaceChildren(...shown.flatMap(([key, name], i) => [i ? " · " : "", make("b", {}, String(progress[key])), ` ${name}`]));
    notice.hidden = !progress.read_only;
    notice.textContent = progress.read_only;
    trials = progress.trials;
    details.hidden = !trials.length;
    showTrials();
  }

  function showTrials() {
    const now = Date.now() / 1000;
    body.replaceChildren(...trials.map(({ number, worker, started, point }) => make("tr", {},
      make("td", { className: "number" }, String(number)),
      make("td", {}, worker),
      make("td", { className: "number" }, started === null ? "" : inWords(Math.max(0, now - started))),
      make("td", {}, Object.entries(point).map(([name, value]) => `${name} ${text(value)}`).join(", ")))));
  }
  setInterval(() => { if (details.open) showTrials(); }, 1000);

  function inWords(seconds) {
    if (seconds < 90) return `${Math.round(seconds)} s`;
    if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
    if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
    return `${Math.round(seconds / 86400)} days`;
  }

  const source = new EventSource(`${path}/events`);
  source.addEventListener("open", () => { dot.className = "dot on"; state.textContent = "live"; });
  source.addEventListener("error", () => {
    dot.className = "dot off";
    if (source.readyState !== EventSource.CLOSED) state.textContent = "connection lost; trying again";
    else state.replaceChildren("the session has ended: ", make("a", { href: "" }, "sign in again"));
  });
  const newest = {};
  for (const kind of ["progress", "report"]) {
    source.addEventListener(kind, (event) => { newest[kind] = JSON.parse(event.data); });
  }
  const on = (kind, listener) => {
    source.addEventListener(kind, () => listener(newest[kind]));
    if (kind in newest) listener(newest[kind]); // an event that came before this listener was added
  };
  on("progress", showProgress);
  return { study, path, on, make, host, inWords, text };
})();
