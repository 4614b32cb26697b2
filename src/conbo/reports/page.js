"use strict";
// The page: charts in the colors of the reader's theme, drawn when they come into sight, and the table of trials.

const dark = matchMedia("(prefers-color-scheme: dark)");
// replaces the figures' colors on a dark page; colors that are not listed suit both themes
const DARK_COLORS = { "#22223b": "#e7e9f3", "#ffffff": "#191c28", "#e6e8ee": "#2d3244", "#8d93a5": "#9aa1b5" };
const SYMBOLS = { star: "★", diamond: "◆", "diamond-open": "◇", "line-ns-open": "|" };
const MANY_CHARTS = 9;
const PAPER_HEIGHT = 190, CROWDED_HEIGHT = 145; // pixels on paper; the second among more than MANY_CHARTS charts
const NARROW_CHART = 420, SMALL_CHART = 300; // widths below which a chart has few ticks, and short labels, in pixels
const PLOT_MARGINS = 115, LETTER_WIDTH = 8.5, LINE_HEIGHT = 17; // pixels
const FEWEST_LETTERS = 6; // labels below the plot are rotated if there is room for fewer letters
const CHART = { displayModeBar: false, responsive: true, scrollZoom: false };

const data = (id) => document.getElementById(id).textContent;
const themed = (text) => JSON.parse(text, (_, value) => (dark.matches && !onPaper() && DARK_COLORS[value]) || value);

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// charts

function loadPlotly() {
  if (!window.Plotly && data("plotly")) document.body.append(element("script", { textContent: data("plotly") }));
  return window.Plotly;
}

// The chart library takes long to load, so text, table and explorer are shown before it is there.
const plotly = new Promise((ready) => {
  addEventListener("load", () => requestAnimationFrame(() => setTimeout(() => ready(loadPlotly()))));
});

const onPaper = () => document.documentElement.classList.contains("paper");

const drawn = new Map(); // from the element of a chart to its figure, as JSON text

function draw(chart, text) {
  const { data: traces, layout } = themed(text);
  drawn.set(chart, text);
  addToLegend(document.getElementById(chart.dataset.legend), traces);
  for (const trace of traces) if (trace.colorbar) delete trace.colorbar.title; // it is in the legend
  layout.paper_bgcolor = layout.plot_bgcolor = "rgba(0,0,0,0)";
  layout.showlegend = false;
  layout.autosize = true;
  const group = onPaper() && chart.closest(".several, .grouped");
  if (group) layout.height = chart.parentElement.querySelectorAll(".chart").length > MANY_CHARTS ? CROWDED_HEIGHT : PAPER_HEIGHT;
  fitLabels(layout, chart.clientWidth);
  layout.dragmode = false; // a finger on a chart scrolls the page
  layout.margin = { l: 12, r: 20, t: 12, b: 12 };
  const react = () => window.Plotly.react(chart, traces, layout, CHART);
  if (window.Plotly) react(); // at once, because printing does not wait
  else plotly.then(react);
}

// Choices and names beside the axes of a small chart are shortened to fit. Plotly would draw choices over each other,
// hide the last one and cut off the name.
function fitLabels(layout, width) {
  for (const name of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))) {
    const axis = layout[name], across = name.startsWith("x");
    const [from, to] = axis.domain ?? [0, 1], length = (to - from) * (across ? width : layout.height);
    if (axis.title?.text) axis.title.text = cut(axis.title.text, Math.max(12, (length - PLOT_MARGINS / 2) / 7));
    if (axis.ticktext && axis.showgrid === false) { // choices, not numbers
      const each = (length - PLOT_MARGINS) / axis.ticktext.length, turned = across && each < FEWEST_LETTERS * LETTER_WIDTH;
      if (turned) axis.tickangle = -90;
      const room = turned ? layout.height / 20 : across ? each / LETTER_WIDTH : width < SMALL_CHART ? 10 : Infinity;
      axis.ticktext = axis.ticktext.map((text) => cut(text, room, !turned && (across || each > 2 * LINE_HEIGHT) ? 2 : 1));
    } else if (across && !axis.ticktext && !axis.range && width < NARROW_CHART) axis.nticks = 3; // long labels of rewards
  }
}

// the first lines of a label of plotly, each cut to the given number of letters
function cut(text, letters, lines = 1) {
  const all = text.split("<br>").map(plain), kept = all.slice(0, lines);
  if (kept.length < all.length) kept.push(`${kept.pop()}…`);
  return kept.map((line) => markupFree(shortened(line, Math.floor(letters)))).join("<br>");
}

// The legend is made here, because plotly's own does not wrap and cannot be shared by several charts. Each name has a
// sample of every form in which it is drawn, in whatever order the charts come.
function addToLegend(legend, traces) {
  for (const trace of legend ? traces : []) {
    if (!trace.colorbar && (!trace.name || trace.showlegend === false)) continue;
    const name = trace.colorbar ? trace.colorbar.title.text : plain(trace.name);
    let entry = [...legend.children].find((entry) => entry.lastChild.textContent === name);
    if (!entry) legend.append(entry = element("li", {}, element("span", {}, name)));
    const sample = legendSample(trace);
    const before = [...entry.children].find((other) => other.className === sample.className);
    if (before) before.replaceWith(sample); // the theme changed
    else entry.prepend(sample);
  }
}

function legendSample(trace) {
  const { line = {}, marker = {} } = trace;
  const sample = (form, text = "") => element("span", { className: `sample ${form}`, "aria-hidden": "true" }, text);
  let made;
  if (trace.colorbar) {
    made = sample("area");
    made.style.background = `linear-gradient(to right, ${trace.colorscale.map(([, color]) => color)})`;
  } else if (trace.fill || trace.type === "bar") {
    made = sample("area");
    made.style.background = trace.fillcolor || marker.color;
  } else if (trace.mode === "lines") {
    made = sample("line");
    made.style.borderTop = `${Math.min(line.width, 4)}px ${line.dash === "dash" ? "dashed" : "solid"} ${line.color}`;
    made.style.opacity = trace.opacity ?? 1;
  } else {
    made = sample("dot", SYMBOLS[marker.symbol] || "●");
    made.style.color = marker.color;
  }
  return made;
}

// a name without the escapes that plotly needs
const plain = (name) => new DOMParser().parseFromString(name, "text/html").body.textContent;

const sight = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) { // never true for a hidden chart
      sight.unobserve(target);
      draw(target, data(target.dataset.figure));
    }
  }
}, { rootMargin: "400px" });
document.querySelectorAll("[data-figure]").forEach((chart) => sight.observe(chart));
dark.addEventListener("change", () => drawn.forEach((text, chart) => draw(chart, text)));

// panels that show one group of figures at a time; the observer draws the charts that appear
document.querySelectorAll("select[data-shows]").forEach((select) => {
  select.addEventListener("change", () => {
    const groups = [...document.getElementById(select.dataset.shows).children];
    groups.forEach((group, i) => { group.hidden = i !== select.selectedIndex; });
    document.getElementById(`${select.dataset.shows}-legend`).replaceChildren();
    for (const chart of groups[select.selectedIndex].querySelectorAll(".chart")) {
      if (drawn.has(chart)) draw(chart, drawn.get(chart));
    }
  });
});

// a folded section opens if a link leads to it
function unfold() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) target.open = true;
}
addEventListener("hashchange", unfold);
document.querySelectorAll("nav a").forEach((link) => link.addEventListener("click", () => setTimeout(unfold)));
unfold();

// the table of trials, a page at a time

const UNBROKEN_LETTERS = 12; // a value with at most this many letters stays in one line
const MANY_COLUMNS = 16; // with more columns, a table on paper has no room for whole words in its head
let trials = JSON.parse(data("trials")); // { columns: [names], steps: [resolutions], rows: [[values]] }

const trialTable = (function table() {
  const ROWS = 20;
  const host = document.getElementById("trial-table"), status = document.getElementById("trial-page");
  const [before, after] = ["trial-before", "trial-after"].map((id) => document.getElementById(id));
  const head = element("tr"), body = element("tbody");
  let heads = [], order = [], page = 0, sorted = 0, falling = false;
  host.append(element("thead", {}, head), body);

  const compare = (a, b) => {
    if (a === b) return 0;
    if (a === null) return 1;
    if (b === null) return -1;
    const smaller = typeof a === typeof b ? a < b : String(a) < String(b);
    return smaller === falling ? 1 : -1;
  };

  function sortButton(name, column) {
    const button = element("button", { type: "button", className: "sort" }, ...breakable(name));
    button.addEventListener("click", () => {
      falling = sorted === column && !falling;
      sorted = column;
      page = 0;
      sort();
    });
    return element("th", { scope: "col" }, button);
  }

  // shows the current rows of `trials`, in the order and on the page that the reader has chosen
  function renew() {
    host.classList.toggle("crowded", trials.columns.length > MANY_COLUMNS);
    if (heads.length !== trials.columns.length) head.replaceChildren(...(heads = trials.columns.map(sortButton)));
    order = trials.rows.map((_, i) => i);
    sort();
  }

  function sort() {
    order.sort((a, b) => compare(trials.rows[a][sorted], trials.rows[b][sorted]) || a - b);
    show();
  }

  function show() {
    heads.forEach((head, column) => {
      head.setAttribute("aria-sort", column === sorted ? (falling ? "descending" : "ascending") : "none");
    });
    const first = page * ROWS, shown = order.slice(first, first + ROWS);
    body.replaceChildren(...shown.map((i) => trialRow(trials.rows[i])));
    status.textContent = order.length ? `${first + 1} to ${first + shown.length} of ${order.length}` : "no trials";
    before.disabled = page === 0;
    after.disabled = first + ROWS >= order.length;
  }
  before.addEventListener("click", () => { page--; show(); });
  after.addEventListener("click", () => { page++; show(); });
  renew();
  return { renew };
})();

// a name that may be broken after an underscore and the like
function breakable(name) {
  return name.split(/(?<=[_./-])/).flatMap((part, i) => (i ? [element("wbr"), part] : [part]));
}

// a row of `trials`; numbers in a column are shown with the digits that its `step` needs
function trialRow(row, columns = trials.columns.keys()) {
  return element("tr", {}, ...[...columns].map((column) => {
    const value = row[column], text = formatNumber(value, trials.steps[column] ?? undefined);
    const form = typeof value === "number" ? "number" : text.length < UNBROKEN_LETTERS ? "whole" : "";
    return element("td", { className: form }, text);
  }));
}
