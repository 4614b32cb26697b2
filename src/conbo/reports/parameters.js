"use strict";
// Parameters in the browser: values in the user's units, places in the unit interval, and text.

function createParameter({ name, type, low, high, log, choices }) {
  if (type === "categorical") {
    return {
      name, type, choices,
      decode: (unit) => choices[choice(unit, choices.length)],
      encode: (value) => (choices.indexOf(value) + 0.5) / choices.length,
      text: (value) => String(value),
    };
  }
  const integer = type === "integer", half = integer ? 0.5 : 0;
  const from = low - half, to = high + half, ratio = Math.log1p((to - from) / from);
  const fromUnit = (unit) => Math.min(to, log ? from + from * Math.expm1(unit * ratio) : from + unit * (to - from));
  const encode = (value) => (log ? Math.log1p((value - from) / from) / ratio : (value - from) / (to - from));
  const nearest = (unit) => Math.min(high, Math.max(low, Math.floor(fromUnit(unit) + 0.5)));
  return {
    name, type, low, high, log, encode,
    decode: integer ? nearest : (unit) => (unit === 1 ? high : fromUnit(unit)),
    snap: (unit) => (integer ? encode(nearest(unit)) : unit),
    neighbour: (unit, step) => encode(Math.min(high, Math.max(low, nearest(unit) + step))),
    text: formatNumber,
  };
}

// four significant digits, without a needless exponent
function formatNumber(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  const size = Math.abs(value);
  if (size < 1e-3 || size >= 1e6) return value.toExponential(3);
  return String(Number(value.toPrecision(4)));
}

// ticks of a logarithmic axis at powers of ten, unless there are too few
function decades(low, high) {
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  const tickvals = Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => 10 ** (first + i));
  return tickvals.length < 2 ? {} : { tickvals, ticktext: tickvals.map((value) => String(Number(value.toPrecision(2)))) };
}

// text for a chart, in which plotly would look for markup and mathematics
function markupFree(value) {
  return String(value).replace(/[&<>$]/g, (letter) => `&#${letter.charCodeAt(0)};`);
}
