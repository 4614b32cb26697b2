"use strict";
// Parameters in the browser: conversion between values in the user's units and the unit interval, and numbers as text.

function createParameter({ name, type, low, high, log, choices }) {
  if (type === "categorical") {
    return {
      name, type, choices,
      decode: (unit) => choices[choice(unit, choices.length)],
      encode: (value) => (choices.indexOf(value) + 0.5) / choices.length,
      text: (value) => formatNumber(value, 0), // all digits
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
    neighbor: (unit, step) => encode(Math.min(high, Math.max(low, nearest(unit) + step))),
    text: (value) => formatNumber(value, 1e-4 * (high - low)),
  };
}

// At least four significant digits, and enough for numbers that differ by `step` to look different, without a needless
// exponent; as in conbo's value_text.py.
function formatNumber(value, step = Infinity) {
  if (value === null || value === undefined) return "";
  if (typeof value === "boolean") return value ? "True" : "False"; // as everywhere else in conbo
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  const size = Math.abs(value), power = Math.floor(Math.log10(size));
  const digits = Math.min(17, Math.max(4, power - Math.floor(Math.log10(step)) + 1));
  const rounded = Number(value.toPrecision(digits));
  return size < 1e-3 || (size >= 1e6 && digits <= power) ? rounded.toExponential() : String(rounded);
}

const NINETY_FIVE = 1.96; // standard deviations that hold 95 % of a normal distribution

// A mean and its margin of 1.96 standard deviations, both to the second digit of the margin, as in conbo's rounding.py.
function withMargin(mean, std) {
  if (std === null) return `${formatNumber(mean)} ± …`; // still being computed
  const margin = NINETY_FIVE * std, most = Math.max(margin, Math.abs(mean)), plain = margin >= 1e-3 && margin < 1e6;
  const decimals = Math.max(0, 1 - Math.floor(Math.log10(margin)));
  const short = plain ? margin.toFixed(decimals) : shortNumber(margin, 2);
  if (mean && most < 1e-3) return `${small(mean, margin)} ± ${short}`;
  const room = mean ? Math.max(0, 5 - Math.floor(Math.log10(Math.abs(mean)))) : decimals;
  return `${plain ? mean.toFixed(Math.min(decimals, room)) : shortNumber(mean, 4)} ± ${short}`;
}

// a number to some significant digits, with an exponent if it is very small or large, as `number` in rounding.py
function shortNumber(value, digits) {
  const size = Math.abs(value);
  if (value && !(size >= 1e-3 && size < 1e6)) return twoDigits(value.toExponential(Math.max(1, digits - 2)));
  const decimals = value ? Math.max(0, digits - 1 - Math.floor(Math.log10(size))) : 0;
  return String(Number(value.toFixed(decimals)));
}

// an exponent of at least two digits, as Python writes it
const twoDigits = (text) => text.replace(/e([+-])(\d)$/, "e$10$2");

// a number below 1e-3 to the second digit of its margin: 0.1e-07 beside a margin of 1.7e-07
function small(value, margin) {
  const exponent = Math.floor(Math.log10(Math.max(Math.abs(value), margin)));
  const digits = margin ? exponent - Math.floor(Math.log10(margin)) + 1 : 2;
  return twoDigits(`${(value / Number(`1e${exponent}`)).toFixed(Math.min(digits, 5))}e${exponent}`);
}

// ticks at integers where these are few, as in conbo's plots/axes.py
function integers(low, high) {
  const levels = high - low + 1, every = levels <= 6 ? 1 : 2;
  if (levels > 12) return {};
  const tickvals = Array.from({ length: Math.ceil(levels / every) }, (_, i) => low + i * every);
  return { tickvals, ticktext: tickvals.map(String) };
}

// ticks of a logarithmic axis at powers of ten, unless there are too few, as in conbo's plots/axes.py
function decades(low, high) {
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  const every = Math.ceil((last - first + 1) / 5) || 1;
  const exponents = Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => first + i).filter((_, i) => i % every === 0);
  if (exponents.length < 2) return {};
  const plain = exponents.every((k) => Math.abs(k) <= 3);
  const raised = (k) => "10" + String(k).replace(/./g, (letter) => "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"["0123456789-".indexOf(letter)]);
  return { tickvals: exponents.map((k) => 10 ** k), ticktext: exponents.map((k) => (plain ? String(10 ** k) : raised(k))) };
}

// a long text as a label of an axis
function shortened(value, longest = 16) {
  const text = String(value);
  return text.length <= longest ? text : `${text.slice(0, longest - 1)}…`;
}

// text for a chart, in which plotly would look for markup and mathematics
function markupFree(value) {
  return String(value).replace(/[&<>$]/g, (letter) => `&#${letter.charCodeAt(0)};`);
}
