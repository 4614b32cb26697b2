"use strict";
// On paper, and in a PDF, every chart is there: in light colors, as wide as the paper, with nothing folded away.

(function paper() {
  const root = document.documentElement.classList;
  let folded = [];

  addEventListener("beforeprint", () => {
    root.add("paper"); // now, not only in print rules: charts measure the page before these hold
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const details of folded) details.open = true;
    loadPlotly();
    document.querySelectorAll("[data-figure]").forEach((chart) => {
      sight.unobserve(chart);
      draw(chart, data(chart.dataset.figure));
    });
    explorer.show();
  });

  addEventListener("afterprint", () => {
    root.remove("paper");
    for (const details of folded) details.open = false;
    document.querySelectorAll(".legend").forEach((legend) => legend.replaceChildren());
    drawn.forEach((text, chart) => { if (chart.offsetParent) draw(chart, text); });
    explorer.show();
  });
})();
