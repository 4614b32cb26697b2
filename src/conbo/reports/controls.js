"use strict";
// A control for one parameter: a slider with a box for a number, a list for a choice.

const STEPS = 200; // number of positions of a slider, unless it has one for each integer

// Returns the control's element `host` and a function `set(unit)`, which moves the control. When the reader moves it,
// `changed(unit)` is called. `unit` is the value, scaled to the unit interval.
function createControl(parameter, id, start, changed) {
  const label = element("label", { htmlFor: id }, ...breakable(parameter.name));
  return parameter.choices ? choiceControl(parameter, id, label, start, changed) : numberControl(parameter, id, label, start, changed);
}

function choiceControl({ choices, text }, id, label, start, changed) {
  const options = choices.map((value, i) => element("option", { value: i }, text(value)));
  const select = element("select", { id, autocomplete: "off" }, ...options);
  const set = (unit) => { select.selectedIndex = choice(unit, choices.length); };
  set(start);
  select.addEventListener("input", () => changed((select.selectedIndex + 0.5) / choices.length));
  return { host: element("div", { className: "control" }, label, select), set };
}

function numberControl(parameter, id, label, start, changed) {
  const levels = parameter.high - parameter.low, counts = parameter.type === "integer" && levels <= STEPS;
  const [toPlace, fromPlace] = counts // every integer has a position of its own
    ? [(unit) => parameter.decode(unit) - parameter.low, (place) => parameter.encode(parameter.low + place)]
    : [(unit) => unit * STEPS, (place) => parameter.snap(place / STEPS)];
  const slider = element("input", { type: "range", id, min: 0, max: counts ? levels : STEPS, autocomplete: "off" });
  const complaint = element("span", { className: "complaint", id: `${id}-complaint`, role: "status" });
  const box = element("input", {
    type: "number", step: "any", autocomplete: "off",
    "aria-label": `${parameter.name}, as a number`, "aria-describedby": complaint.id,
  });
  box.min = parameter.low;
  box.max = parameter.high;
  let shown = start; // the value that the page answers for

  function set(unit) {
    shown = unit;
    const text = parameter.text(parameter.decode(unit));
    slider.value = toPlace(unit);
    slider.style.setProperty("--filled", `${(100 * slider.value) / slider.max}%`);
    slider.setAttribute("aria-valuetext", text);
    if (document.activeElement !== box) box.value = text;
    complain("");
  }
  function complain(text) {
    complaint.textContent = text;
    if (text) box.setAttribute("aria-invalid", "true");
    else box.removeAttribute("aria-invalid");
  }
  slider.addEventListener("input", () => {
    set(fromPlace(slider.valueAsNumber));
    changed(shown);
  });
  box.addEventListener("input", () => {
    const value = box.valueAsNumber, { low, high, text, decode } = parameter;
    if (!(value >= low && value <= high)) {
      complain(`From ${text(low)} to ${text(high)}; the answer is for ${text(decode(shown))}.`);
      return;
    }
    set(parameter.snap(Math.min(1, Math.max(0, parameter.encode(value)))));
    changed(shown);
  });
  box.addEventListener("blur", () => set(shown));
  set(start);
  return { host: element("div", { className: "control" }, label, box, slider, complaint), set };
}
