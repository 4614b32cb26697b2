"use strict";
// A report that updates itself: new numbers replace old ones, and the reader's place on the page is kept.

(function () {
  const { on, make, host, study, inWords } = live;
  let shown = Number(document.body.dataset.report), busy = false;
  const offer = make("p", { className: "offer", hidden: true }, "The report has new sections. ");
  const reload = make("button", { type: "button" }, "Show them");
  reload.addEventListener("click", () => location.reload());
  offer.append(reload);
  host.append(offer);

  on("report", async ({ number, trouble }) => {
    if (number === shown || trouble || busy) return;
    busy = true;
    try {
      if (await renew()) shown = number;
    } finally {
      busy = false;
    }
  });

  // a text that says which charts, columns and kind of explorer a page has
  const structure = (page) => JSON.stringify([
    [...page.querySelectorAll("[data-figure]")].map(({ dataset }) => dataset.figure),
    JSON.parse(page.getElementById("trials").textContent).columns,
    "model" in JSON.parse(page.getElementById("explorer-record").textContent),
  ]);

  async function renew() {
    const response = await fetch(location.pathname).catch(() => null);
    if (!response || !response.ok) return false;
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html"); // its scripts do not run
    if (structure(fresh) !== structure(document)) {
      offer.hidden = false;
      return true;
    }
    for (const id of ["learned", "written"]) {
      document.getElementById(id).replaceChildren(...fresh.getElementById(id).childNodes);
    }
    const texts = (page) => page.querySelectorAll("article.panel > p");
    texts(fresh).forEach((text, i) => { texts(document)[i].textContent = text.textContent; });
    for (const record of fresh.querySelectorAll("script[type='application/json']")) {
      document.getElementById(record.id).textContent = record.textContent;
    }
    trials = JSON.parse(data("trials"));
    trialTable.renew();
    explorer.renew();
    redraw();
    return true;
  }

  function redraw() {
    document.querySelectorAll("article .legend").forEach((legend) => legend.replaceChildren());
    for (const chart of [...drawn.keys()].filter(({ dataset }) => dataset.figure)) {
      if (chart.offsetParent) draw(chart, data(chart.dataset.figure));
      else { // the chart is folded away, so it is drawn when it is visible again
        drawn.delete(chart);
        sight.observe(chart);
      }
    }
  }

  // what changed since the last visit

  const fact = (name) => [...document.querySelectorAll("#learned .facts div")]
    .find((one) => one.querySelector("dt").textContent === name)?.querySelector("dd").textContent;
  const now = () => ({ at: Date.now(), evaluations: Number(fact("evaluations")), value: fact("policy value") });
  const key = `conbo: ${study}`;
  let before = null;
  try {
    before = JSON.parse(localStorage.getItem(key));
  } catch { /* the stored text is not JSON */ }
  const more = before ? now().evaluations - before.evaluations : 0;
  if (more > 0) {
    const changed = before.value === now().value ? "" : `; the policy value was ${before.value} and is ${now().value}`;
    const words = `${more} more evaluation${more > 1 ? "s" : ""}${changed}`;
    host.append(make("p", { id: "since" }, `Since your last visit, ${inWords((Date.now() - before.at) / 1000)} ago: ${words}.`));
  }
  const remember = () => { try { localStorage.setItem(key, JSON.stringify(now())); } catch { /* the storage is full or turned off */ } };
  addEventListener("pagehide", remember);
})();
