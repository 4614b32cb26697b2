"use strict";
// The policy explorer: choose a state, see the action, its reward and what was observed nearby.

const explorer = (function () {
  const record = JSON.parse(data("explorer-record"));
  const states = record.states.map(createParameter), actions = record.actions.map(createParameter);
  const STEPS = 200, NEAREST = 5, CURVE = 61;
  const state = [...record.start]; // in the unit cube
  const answer = record.model ? fromModel(record.model) : fromTable(record.table);
  const MODEL = "#2f7ebc", POLICY = "#f26419"; // as in all plots
  const FONT = { family: getComputedStyle(document.body).fontFamily, size: 13 };
  let shownAction = 0;

  // An answer: the state that it is `of`, its best `action`, both in the unit cube, the `mean` reward, `std(action)`,
  // which is null until it can be known, and `at(action)`, the mean reward of any action.

  function fromModel(packed) {
    packed.integers = packed.integers.map((is, j) => (is ? actions[j] : null));
    const model = createModel(packed);
    const ready = model.prepare();
    return {
      ready,
      unbend: model.unbend,
      at(units) {
        const { row, at: meanAt, action, mean } = model.best(Float64Array.from(units));
        const std = (there) => model.std(row, there);
        const at = (there) => model.toReward(meanAt(there));
        return { of: units, action: [...action], mean: model.toReward(mean), std, at };
      },
    };
  }

  function fromTable(packed) {
    const at = rows(floats(packed.states), states.length || 1), chosen = rows(floats(packed.actions), actions.length);
    const means = floats(packed.means), stds = floats(packed.stds);
    return {
      ready: Promise.resolve(),
      unbend: (place) => place,
      at(units) {
        let best = 0;
        const away = (i) => (states.length ? distance(units, at[i], states) : 0);
        for (let i = 1; i < means.length; i++) if (away(i) < away(best)) best = i;
        const of = states.length ? [...at[best]] : [];
        return { of, action: [...chosen[best]], mean: means[best], std: () => stds[best], at: null };
      },
    };
  }

  function distance(a, b, parameters) {
    return parameters.reduce((sum, { choices }, j) => {
      const same = choices && choice(a[j], choices.length) === choice(b[j], choices.length);
      return sum + (choices ? (same ? 0 : 1) : (a[j] - b[j]) ** 2);
    }, 0);
  }

  // controls

  const controls = document.getElementById("explorer-controls");
  states.forEach((parameter, j) => {
    const id = `state-${j}`;
    const label = element("label", { htmlFor: id }, parameter.name);
    if (parameter.type === "categorical") {
      const options = parameter.choices.map((value, i) => element("option", { value: i }, String(value)));
      const select = element("select", { id }, ...options);
      select.selectedIndex = choice(state[j], parameter.choices.length);
      select.addEventListener("input", () => {
        state[j] = (select.selectedIndex + 0.5) / parameter.choices.length;
        update();
      });
      controls.append(element("div", { className: "control" }, label, select));
      return;
    }
    const levels = parameter.high - parameter.low, counts = parameter.type === "integer" && levels <= STEPS;
    const [toPlace, fromPlace] = counts // every integer has a place of its own
      ? [(unit) => parameter.decode(unit) - parameter.low, (place) => parameter.encode(parameter.low + place)]
      : [(unit) => unit * STEPS, (place) => parameter.snap(place / STEPS)];
    const max = counts ? levels : STEPS;
    const slider = element("input", { type: "range", id, min: 0, max, value: toPlace(state[j]) });
    const box = element("input", { type: "number", step: "any", "aria-label": `${parameter.name}, as a number` });
    box.min = parameter.low;
    box.max = parameter.high;
    const write = () => {
      const text = parameter.text(parameter.decode(state[j]));
      slider.style.setProperty("--filled", `${(100 * slider.value) / slider.max}%`);
      if (document.activeElement !== box) box.value = text;
      slider.setAttribute("aria-valuetext", text);
    };
    slider.addEventListener("input", () => {
      state[j] = fromPlace(slider.valueAsNumber);
      write();
      update();
    });
    box.addEventListener("input", () => {
      const value = box.valueAsNumber;
      if (!(value >= parameter.low && value <= parameter.high)) return;
      state[j] = parameter.snap(Math.min(1, Math.max(0, parameter.encode(value))));
      slider.value = toPlace(state[j]);
      write();
      update();
    });
    box.addEventListener("blur", write);
    write();
    controls.append(element("div", { className: "control" }, label, box, slider));
  });

  // what is shown

  const found = document.getElementById("explorer-action"), reward = document.getElementById("explorer-reward");
  const note = document.getElementById("explorer-note"), nearby = document.getElementById("explorer-nearest");
  const chart = document.getElementById("explorer-chart"), which = document.getElementById("explorer-which");
  which.append(...actions.map(({ name }, j) => element("option", { value: j }, name)));
  which.addEventListener("input", () => { shownAction = which.selectedIndex; update(); });
  document.getElementById("explorer-curve").hidden = !record.model;

  let waiting = false;
  function update() { // at most once a frame
    if (!waiting) requestAnimationFrame(() => { waiting = false; show(); });
    waiting = true;
  }

  function show() {
    const now = answer.at(state), std = now.std(now.action);
    found.replaceChildren(...actions.map((parameter, j) => {
      const value = parameter.text(parameter.decode(now.action[j]));
      const mark = element("span", { className: "mark" });
      mark.style.left = `${100 * now.action[j]}%`;
      return element("tr", {},
        element("th", { scope: "row" }, parameter.name),
        element("td", { className: "value" }, value),
        element("td", { className: "place", "aria-hidden": "true" }, element("span", { className: "track" }, mark)));
    }));
    const spread = std === null ? "" : ` ± ${formatNumber(Number((2 * std).toPrecision(2)))}`;
    reward.textContent = formatNumber(now.mean) + spread;
    const where = states.map((p, j) => `${p.name} ${p.text(p.decode(now.of[j]))}`).join(", ");
    const isNear = record.table && states.length > 0;
    note.textContent = isNear ? `Answers are kept for a table of states; this is the nearest: ${where}.` : "";
    showNearest(now);
    if (record.model) showCurve(now);
  }

  const parameters = [...states, ...actions];
  const columns = parameters.map(({ name }) => trials.columns.indexOf(name));
  const rewards = trials.columns.indexOf("reward");
  const observed = trials.rows.filter((row) => row[rewards] !== null).map((row) => (
    { row, point: parameters.map((p, j) => p.encode(row[columns[j]])) }
  ));
  // states count first: the same state with another action is nearer than another state with the same action
  const weightOfAction = 1 / 16;

  function showNearest(now) {
    const away = ({ point }) => distance(now.of, point.slice(0, states.length), states)
      + weightOfAction * distance(now.action, point.slice(states.length), actions);
    const nearest = observed.map((one) => [away(one), one.row]).sort((a, b) => a[0] - b[0]).slice(0, NEAREST);
    const shown = [trials.columns.indexOf("number"), ...columns, rewards];
    const head = shown.map((column) => element("th", { scope: "col" }, trials.columns[column]));
    nearby.replaceChildren(
      element("thead", {}, element("tr", {}, ...head)),
      element("tbody", {}, ...nearest.map(([, row]) => trialRow(shown.map((column) => row[column])))),
    );
  }

  function showCurve(now) {
    const parameter = actions[shownAction], levels = parameter.choices && parameter.choices.length;
    const places = levels ? parameter.choices.map((_, i) => (i + 0.5) / levels) : curvePlaces(parameter);
    const points = places.map((place) => now.action.map((u, j) => (j === shownAction ? place : u)));
    const x = places.map((place, i) => (levels ? i : parameter.decode(place)));
    const mean = points.map(now.at), std = curveStd(now, points), hovertemplate = "%{y:.4~g}<extra></extra>";
    const curve = { x, y: mean, mode: "lines", line: { color: MODEL, width: 2.5 }, hovertemplate };
    const band = {
      mode: "lines", line: { width: 0 }, fill: "toself", fillcolor: "rgba(47,126,188,0.22)", hoverinfo: "skip",
      x: std ? [...x, ...[...x].reverse()] : [],
      y: std ? [...mean.map((m, i) => m + 2 * std[i]), ...mean.map((m, i) => m - 2 * std[i]).reverse()] : [],
    };
    const choices = { x, y: mean, mode: "markers", marker: { color: MODEL, size: 8 }, hovertemplate };
    if (std) choices.error_y = { array: std.map((s) => 2 * s), color: MODEL };
    const recommended = {
      x: [levels ? choice(now.action[shownAction], levels) : parameter.decode(now.action[shownAction])],
      y: [now.mean], mode: "markers", cliponaxis: false, hovertemplate, name: "recommended",
      marker: { color: POLICY, size: 12, line: { color: "#ffffff", width: 1 } },
    };
    draw(chart, JSON.stringify({
      data: levels ? [choices, recommended] : [band, curve, recommended],
      layout: { height: 280, font: { ...FONT, color: "#22223b" }, xaxis: axisOf(parameter), yaxis: axis("reward") },
    }));
  }

  // evenly from end to end, and where actions are bent also evenly in these: most places are where rewards change fast
  function curvePlaces(parameter) {
    const even = Array.from({ length: CURVE }, (_, i) => i / (CURVE - 1));
    const places = [...even, ...even.map((place) => answer.unbend(place, shownAction))];
    return [...new Set(places.map(parameter.snap))].sort((a, b) => a - b);
  }

  function axisOf(parameter) {
    const { name, low, high, log, choices } = parameter, plain = axis(markupFree(name));
    if (choices) {
      const ticktext = choices.map(markupFree);
      return { ...plain, tickvals: ticktext.map((_, i) => i), ticktext, range: [-0.5, choices.length - 0.5] };
    }
    if (!log) return { ...plain, range: [low, high] };
    return { ...plain, type: "log", range: [Math.log10(low), Math.log10(high)], ...decades(low, high) };
  }

  function axis(text) {
    return { title: { text, font: { size: 13 } }, gridcolor: "#e6e8ee", zeroline: false, automargin: true };
  }

  // two standard deviations along the curve cost a solve for each place: where these are slow, fewer places must do
  function curveStd(now, points) {
    if (now.std(now.action) === null) return null;
    const budget = 40; // milliseconds
    const began = performance.now();
    now.std(now.action);
    const every = Math.max(1, Math.ceil((points.length * (performance.now() - began)) / budget));
    const known = points.map((point, i) => (i % every === 0 || i === points.length - 1 ? now.std(point) : null));
    return known.map((value, i) => {
      if (value !== null) return value;
      let before = i, after = i;
      while (known[before] === null) before--;
      while (known[after] === null) after++;
      return known[before] + ((known[after] - known[before]) * (i - before)) / (after - before);
    });
  }

  show();
  answer.ready.then(show);
  return {
    ready: answer.ready,
    state: () => Object.fromEntries(states.map((p, j) => [p.name, p.decode(state[j])])),
    recommend(values) { // { name: value } → what the page would show
      const units = states.map((p) => p.encode(values[p.name])), now = answer.at(units);
      const action = Object.fromEntries(actions.map((p, j) => [p.name, p.decode(now.action[j])]));
      return { action, mean: now.mean, std: now.std(now.action) };
    },
  };
})();
