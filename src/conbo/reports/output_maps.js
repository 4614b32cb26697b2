"use strict";
// Monotone maps between the values of a Gaussian process and expected rewards, as in conbo's models/output_maps.py. They
// give the mean and variance of the expected reward for a mean and variance of the process and a variance of the noise.

const LARGEST_EXPONENT = 30, LEAST_VARIANCE = 1e-10;

function createOutputMap(record) {
  const { nodes, nodeWeights } = record, low = record.low ?? -Infinity, high = record.high ?? Infinity;
  const tail = record.type === "limits" ? record.tail : record;
  const moments = tail ? tailMoments({ ...tail, nodes, nodeWeights }, low, high) : limitedMoments(low, high);
  const unlimited = tail ? tailMoments({ ...tail, nodes, nodeWeights }, -Infinity, Infinity) : null;
  return {
    moments,
    // An approximate mean for the first part of a search: without the variance of the process, and without the limits,
    // beyond which there is no slope.
    rough: (value, noise) => (unlimited ? unlimited(value, 0, noise) : { mean: value, inMean: 1, inNoise: 0 }),
    // the quotient of the standard deviations of the expected reward and of the process
    slope(mean, variance, noise) {
      const known = Math.max(variance, LEAST_VARIANCE);
      return Math.sqrt(Math.max(moments(mean, known, noise).variance / known, 1e-300));
    },
  };
}

// The mean and the variance of the expected reward E[g⁻¹(z)], clipped to the limits, by quadrature; and the derivatives
// of the mean with respect to the mean and variance of the process and the variance of the noise
function tailMoments({ pivot, width, shift, scale, power = 0, nodes, nodeWeights }, low, high) {
  function inverse(z) {
    const below = -(shift + scale * z) / width, deep = Math.max(0, below);
    const distance = power > 0 ? Math.log1p(power * deep) / power : deep, inner = Math.min(LARGEST_EXPONENT, distance);
    const grown = Math.expm1(inner) + (distance - inner) * Math.exp(inner) + Math.min(below, 0);
    return { value: pivot - width * grown, slope: scale * Math.exp(inner - power * distance) };
  }

  return (mean, variance, noise) => {
    const sd = Math.sqrt(Math.max(variance, 1e-300)), noiseSd = Math.sqrt(noise);
    let inMean = 0, inSd = 0, inNoiseSd = 0, average = 0, spread = 0;
    const values = nodes.map((node, i) => {
      let value = 0, slope = 0, noiseSlope = 0;
      nodes.forEach((other, k) => {
        const there = inverse(mean + sd * node + noiseSd * other), weight = nodeWeights[k];
        value += weight * there.value;
        slope += weight * there.slope;
        noiseSlope += weight * there.slope * other;
      });
      if (value > low && value < high) {
        inMean += nodeWeights[i] * slope;
        inSd += nodeWeights[i] * slope * node;
        inNoiseSd += nodeWeights[i] * noiseSlope;
      }
      value = Math.min(high, Math.max(low, value));
      average += nodeWeights[i] * value;
      return value;
    });
    values.forEach((value, i) => { spread += nodeWeights[i] * (value - average) ** 2; });
    const inNoise = noiseSd > 0 ? inNoiseSd / (2 * noiseSd) : 0;
    return { mean: average, variance: spread, inMean, inVariance: inSd / (2 * Math.max(sd, 1e-5)), inNoise };
  };
}

// the mean and the variance of a Gaussian variable that is clipped to [low, high], in closed form
function limitedMoments(low, high) {
  const times = (bound, weight) => (Number.isFinite(bound) ? bound * weight : 0);
  return (mean, variance) => {
    const sd = Math.sqrt(Math.max(variance, 1e-24)), a = (low - mean) / sd, b = (high - mean) / sd;
    const below = normalCdf(a), above = normalCdf(-b), inside = Math.max(0, 1 - below - above);
    const atLow = normalDensity(a), atHigh = normalDensity(b);
    const average = times(low, below) + times(high, above) + mean * inside + sd * (atLow - atHigh);
    const second = inside + times(a, atLow) - times(b, atHigh);
    const fromMean = times((low - mean) ** 2, below) + times((high - mean) ** 2, above) + variance * second;
    return {
      mean: Math.min(high, Math.max(low, average)),
      variance: Math.max(0, fromMean - (average - mean) ** 2),
      inMean: inside, inVariance: (atLow - atHigh) / (2 * sd), inNoise: 0,
    };
  };
}

function normalDensity(z) {
  return Math.exp(-0.5 * z * z) / Math.sqrt(2 * Math.PI);
}

// Φ, by its Taylor series (Marsaglia, 2004)
function normalCdf(z) {
  if (Math.abs(z) > 8) return z > 0 ? 1 : 0;
  let sum = z, term = z;
  for (let k = 3; Math.abs(term) > 1e-17 * Math.abs(sum); k += 2) {
    term *= (z * z) / k;
    sum += term;
  }
  return 0.5 + sum * normalDensity(z);
}

// the variance of the noise of a new reward at a point of the unit cube: one value, or log-linear in the point
function createNoise(record, counts) {
  if (typeof record === "number") return { at: () => record, slope: () => 0 };
  const { logLevel, terms, bounds: [low, high] } = record;
  const logarithm = (point) => terms.reduce((sum, term, j) => (
    sum + (counts[j] ? term[choice(point[j], counts[j])] : term[0] * point[j])
  ), logLevel);
  return {
    at: (point) => Math.exp(Math.min(high, Math.max(low, logarithm(point)))),
    slope(point, j) { // derivative with respect to column j of the point
      const value = logarithm(point);
      return value > low && value < high ? Math.exp(value) * terms[j][0] : 0;
    },
  };
}
