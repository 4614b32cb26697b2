"use strict";
// The policy explorer: choose a state, see the action, its reward and the observations nearby; move the action, and see
// what that costs. The predictions come from mixture.js.

const explorer = (function () {
  let record = JSON.parse(data("explorer-record"));
  const states = record.states.map(createParameter), actions = record.actions.map(createParameter);
  const NEAREST_SHOWN = 5, CURVE_POINTS = 61;
  const state = [...record.start]; // in the unit cube
  const own = actions.map(() => null); // the reader's own value of an action; null stands for the recommendation
  let answer = record.model ? fromModel(record.model) : fromTable(record.table);
  const MODEL = "#2f7ebc", POLICY = "#f26419", INK = "#22223b"; // as in all plots
  const FONT = { family: getComputedStyle(document.body).fontFamily, size: 13 };
  let shownAction = 0;

  // An answer is an object about one state. It holds the state (`of`) and its best `action`, both in the unit cube, the
  // `mean` reward of this action, the function `at(action)`, which returns the mean reward of any action, and the
  // functions `std(action)` and `differenceStd(action, other)`, which return null until the model is prepared. An answer
  // from a table knows the best action only.

  function fromModel(packed) {
    packed.integers = packed.integers.map((is, j) => (is ? actions[j] : null));
    // the best action is found with the model, and its reward is predicted with an average over hyperparameters
    const model = createModel(packed);
    const predictive = packed.predictive ? createModel({ ...packed, ...packed.predictive }) : model;
    const ready = model.prepare().then(() => (predictive === model ? null : predictive.prepare()));
    return {
      ready,
      unwarp: model.unwarp,
      at(units) {
        const where = Float64Array.from(units), action = model.best(where), known = predictive.about(where);
        const at = (there) => model.toReward(known.at(there));
        const { std, differenceStd } = known;
        return { of: units, action: [...action], mean: at(action), std, differenceStd, at };
      },
    };
  }

  function fromTable(packed) {
    const at = rows(floats(packed.states), states.length || 1), chosen = rows(floats(packed.actions), actions.length);
    const means = floats(packed.means), stds = floats(packed.stds);
    const kept = packed.probabilities ? floats(packed.probabilities) : null;
    return {
      ready: Promise.resolve(),
      unwarp: (place) => place,
      at(units) {
        let best = 0;
        const away = (i) => (states.length ? distance(units, at[i], states) : 0);
        for (let i = 1; i < means.length; i++) if (away(i) < away(best)) best = i;
        const of = states.length ? [...at[best]] : [];
        const limit = packed.binding ? packed.limits[packed.binding[best]] : undefined; // undefined at index -1, if no limit binds
        return { of, action: [...chosen[best]], mean: means[best], std: () => stds[best], at: null,
          probability: kept && kept[best], limit };
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

  const found = document.getElementById("explorer-action"), reward = document.getElementById("explorer-reward");
  const note = document.getElementById("explorer-note"), nearby = document.getElementById("explorer-nearest");
  const cost = document.getElementById("explorer-cost"), back = document.getElementById("explorer-back");
  const chart = document.getElementById("explorer-chart"), which = document.getElementById("explorer-which");
  const stateControls = states.map((parameter, j) => createControl(parameter, `state-${j}`, state[j], (unit) => {
    state[j] = unit;
    update();
  }));
  document.getElementById("explorer-controls").append(...stateControls.map(({ host }) => host));
  const actionControls = !record.model ? [] : actions.map((parameter, j) => {
    const control = createControl(parameter, `action-${j}`, 0.5, (unit) => {
      own[j] = unit;
      if (which.selectedIndex !== j) which.selectedIndex = shownAction = j; // show the curve along the moved action
      update();
    });
    const recommended = element("span", { className: "recommended quiet" });
    control.host.append(recommended);
    return { ...control, recommended };
  });
  found.replaceChildren(...actionControls.map(({ host }) => host));
  which.append(...actions.map(({ name }, j) => element("option", { value: j }, name)));
  which.addEventListener("input", () => { shownAction = which.selectedIndex; update(); });
  back.addEventListener("click", () => { own.fill(null); update(); });
  document.getElementById("explorer-curve").hidden = !record.model;

  let waiting = false;
  function update() { // at most once a frame
    if (!waiting) requestAnimationFrame(() => { waiting = false; show(); });
    waiting = true;
  }

  // what is shown

  function show() {
    const now = answer.at(state), taken = now.action.map((unit, j) => own[j] ?? unit);
    const moved = own.some((unit) => unit !== null);
    if (record.model) showActions(now);
    else {
      found.replaceChildren(...actions.map((parameter, j) => element("div", { className: "control" },
        element("span", { className: "name" }, parameter.name),
        element("span", { className: "value" }, parameter.text(parameter.decode(now.action[j]))))));
    }
    reward.textContent = withMargin(moved ? now.at(taken) : now.mean, now.std(taken));
    cost.textContent = moved ? costInWords(now, taken) : "";
    back.hidden = !moved;
    document.getElementById("explorer-whose").textContent = moved ? "Your action" : "Recommended action";
    const where = states.map((p, j) => `${p.name} ${p.text(p.decode(now.of[j]))}`).join(", ");
    const isNear = record.table && states.length > 0;
    const kept = now.probability == null ? "" : `It satisfies all constraints with probability ${now.probability.toFixed(3)}. `;
    const held = now.limit === undefined ? "" : `It is held back by the limit: ${now.limit}. `;
    note.textContent = kept + held + (isNear ? `Answers are kept for a table of states; this is the nearest: ${where}.` : "");
    showNearest(now, taken);
    if (record.model) showCurve(now, taken, moved);
  }

  function showActions(now) {
    actionControls.forEach(({ host, set, recommended }, j) => {
      set(own[j] ?? now.action[j]);
      host.classList.toggle("moved", own[j] !== null);
      recommended.textContent = own[j] === null ? "" : `recommended: ${actions[j].text(actions[j].decode(now.action[j]))}`;
    });
  }

  function costInWords(now, taken) {
    const lost = Math.max(0, (now.mean - now.at(taken)) * (record.maximize ? 1 : -1));
    const recommended = `${withMargin(now.mean, now.std(now.action))} of the recommended action`;
    return `Costs ${withMargin(lost, now.differenceStd(now.action, taken))} against the ${recommended}.`;
  }

  const parameters = [...states, ...actions];
  const columns = parameters.map(({ name }) => trials.columns.indexOf(name));
  const rewards = trials.columns.indexOf("reward");
  const observations = () => trials.rows.filter((row) => row[rewards] !== null).map((row) => (
    { row, point: parameters.map((p, j) => p.encode(row[columns[j]])) }
  ));
  let observed = observations();
  // States count more than actions, so the same state with another action is nearer than another state with the same
  // action.
  const weightOfAction = 1 / 16;

  function showNearest(now, taken) {
    const away = ({ point }) => distance(now.of, point.slice(0, states.length), states)
      + weightOfAction * distance(taken, point.slice(states.length), actions);
    const nearest = observed.map((one) => [away(one), one.row]).sort((a, b) => a[0] - b[0]).slice(0, NEAREST_SHOWN);
    const shown = [trials.columns.indexOf("number"), rewards, ...columns]; // the reward comes early, so that it is visible
    const head = shown.map((column) => element("th", { scope: "col" }, ...breakable(trials.columns[column])));
    nearby.classList.toggle("crowded", shown.length > MANY_COLUMNS);
    nearby.replaceChildren(
      element("thead", {}, element("tr", {}, ...head)),
      element("tbody", {}, ...nearest.map(([, row]) => trialRow(row, shown))),
    );
  }

  function showCurve(now, taken, moved) {
    const parameter = actions[shownAction], levels = parameter.choices && parameter.choices.length;
    const places = levels ? parameter.choices.map((_, i) => (i + 0.5) / levels) : curvePlaces(parameter);
    const points = places.map((place) => taken.map((u, j) => (j === shownAction ? place : u)));
    const x = places.map((place, i) => (levels ? i : parameter.decode(place)));
    const mean = points.map(now.at), std = curveStd(now, points), hovertemplate = "%{y:.4~g}<extra></extra>";
    const curve = { x, y: mean, mode: "lines", line: { color: MODEL, width: 2.5 }, hovertemplate };
    const margins = std && std.map((s) => NINETY_FIVE * s);
    const band = {
      mode: "lines", line: { width: 0 }, fill: "toself", fillcolor: "rgba(47,126,188,0.22)", hoverinfo: "skip",
      x: margins ? [...x, ...[...x].reverse()] : [],
      y: margins ? [...mean.map((m, i) => m + margins[i]), ...mean.map((m, i) => m - margins[i]).reverse()] : [],
    };
    const choices = { x, y: mean, mode: "markers", marker: { color: MODEL, size: 8 }, hovertemplate };
    if (margins) choices.error_y = { array: margins, color: MODEL };
    const marker = (action, y, name, color) => ({
      x: [levels ? choice(action[shownAction], levels) : parameter.decode(action[shownAction])],
      y: [y], mode: "markers", cliponaxis: false, hovertemplate, name,
      marker: { color, size: 12, line: { color: "#ffffff", width: 1 } },
    });
    const marks = [marker(now.action, now.mean, "recommended", POLICY)];
    if (moved) marks.push(marker(taken, now.at(taken), "yours", INK));
    draw(chart, JSON.stringify({
      data: [...(levels ? [choices] : [band, curve]), ...marks],
      layout: { height: 300, font: { ...FONT, color: INK }, xaxis: axisOf(parameter), yaxis: axis("reward", "width") },
    }));
  }

  // Points of the curve: evenly spaced and, if actions are warped, also evenly spaced after warping, so that most are
  // where rewards change fast.
  function curvePlaces(parameter) {
    const even = Array.from({ length: CURVE_POINTS }, (_, i) => i / (CURVE_POINTS - 1));
    const places = [...even, ...even.map((place) => answer.unwarp(place, shownAction))];
    return [...new Set(places.map(parameter.snap))].sort((a, b) => a - b);
  }

  function axisOf(parameter) {
    const { name, type, low, high, log, choices, text } = parameter, plain = axis(markupFree(name), "height");
    if (choices) {
      const ticktext = choices.map((value) => markupFree(shortened(text(value))));
      return { ...plain, tickvals: ticktext.map((_, i) => i), ticktext, range: [-0.5, choices.length - 0.5], showgrid: false };
    }
    if (!log) return { ...plain, range: [low, high], ...(type === "integer" ? integers(low, high) : {}) };
    return { ...plain, type: "log", range: [Math.log10(low), Math.log10(high)], ...decades(low, high) };
  }

  function axis(text, automargin) {
    return { title: { text, font: { size: 13 } }, gridcolor: "#e6e8ee", zeroline: false, automargin,
      exponentformat: "power", minexponent: 6, ticklabelstandoff: 6 }; // as in conbo's plots/style.py
  }

  // Standard deviations along the curve. Each costs the solution of a linear system, so if that is slow, only some are
  // computed and the others interpolated.
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
    show,
    renew() { // reads the page's new data, and keeps the state and actions that the reader has chosen
      record = JSON.parse(data("explorer-record"));
      answer = record.model ? fromModel(record.model) : fromTable(record.table);
      observed = observations();
      show();
      answer.ready.then(show);
    },
    state: () => Object.fromEntries(states.map((p, j) => [p.name, p.decode(state[j])])),
    recommend(values) { // { name: value } → the recommendation that the page would show
      const units = states.map((p) => p.encode(values[p.name])), now = answer.at(units);
      const action = Object.fromEntries(actions.map((p, j) => [p.name, p.decode(now.action[j])]));
      return { action, mean: now.mean, std: now.std(now.action) };
    },
  };
})();
