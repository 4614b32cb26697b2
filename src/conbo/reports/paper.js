"use strict";
// Printing: on paper, and in a PDF, all charts are drawn in light colors, as wide as the paper, with nothing folded away.

(function paper() {
  const root = document.documentElement.classList;
  let folded = [];

  addEventListener("beforeprint", () => {
    root.add("paper"); // a class and not only print rules, because charts measure the page before such rules apply
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
