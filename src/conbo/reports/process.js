"use strict";
// A Gaussian process in the browser, with the same predictions as conbo's Python code, but without a server.
//
//   k = A(s, s') κ(x, x') + B(s, s'),   A = T(c, c') φ(r) + σ_X²,   B = U(c, c') φ(r) + σ_S² φ(r')
//
// Rewards of the same seed of a simulator have correlated noise.
//
// c is the combination of a state's categories, r the scaled distance between the other columns of two states, and r'
// the same distance in the scales of the state's main effect. Points are rows of the unit cube, states first. Rewards
// are standardized and to be maximized. Actions may be warped; all functions here take warped actions. They may also be
// relative to the state: then x - W s replaces an action x in a state s.

function createProcess(record) {
  const { profile, constant, tables, stateScales, actionScales, stateCounts, actionCounts } = record;
  const dS = stateScales.length, dX = actionScales.length, d = dS + dX;
  const points = floats(record.points), weights = floats(record.weights), noise = floats(record.noise);
  const n = weights.length;
  const effect = record.seedEffect ?? null, seeds = effect && floats(effect.seeds);
  const effects = record.mainEffects ?? { actionVariance: 0, stateVariance: 0, stateScales };
  const { warp } = createWarp(record.actionExponents); // of one number of an action
  const warped = (action) => action.map(warp);
  const shear = record.shear ?? null; // W
  const relative = (state, action) => (shear ? action.map((x, j) => x - dot(shear[j], state, dS)) : action);
  for (let i = 0; i < n; i++) {
    const state = points.subarray(i * d, i * d + dS), action = warped(points.subarray(i * d + dS, (i + 1) * d));
    points.set(relative(state, action), i * d + dS);
  }
  const pool = rows(floats(record.pool), dX).map(warped);

  const { value: phi, slopes } = PROFILES[profile];

  // the index, in the tables T and U, of the combination of categories in a state
  function combination(point, at) {
    let index = 0;
    for (const column of tables.columns) {
      const count = stateCounts[column];
      index = index * count + choice(point[at + column], count);
    }
    return index;
  }
  const combinations = Array.from({ length: n }, (_, i) => combination(points, i * d));

  function squaredDistance(a, atA, b, atB, scales, counts) {
    let total = 0;
    for (let j = 0; j < scales.length; j++) {
      const count = counts[j];
      if (count) {
        if (choice(a[atA + j], count) !== choice(b[atB + j], count)) total += scales[j] * scales[j];
      } else {
        const away = (a[atA + j] - b[atB + j]) * scales[j];
        total += away * away;
      }
    }
    return total;
  }

  // A and B between one state and the observed ones, or the first few of them
  function stateRow(state, count = n) {
    const scale = new Float64Array(count), offset = new Float64Array(count);
    const own = combination(state, 0) * tables.size;
    for (let i = 0; i < count; i++) {
      const value = phi(squaredDistance(state, 0, points, i * d, stateScales, stateCounts));
      scale[i] = tables.scale[own + combinations[i]] * value + effects.actionVariance;
      offset[i] = tables.offset[own + combinations[i]] * value;
      if (effects.stateVariance) {
        const effect = phi(squaredDistance(state, 0, points, i * d, effects.stateScales, stateCounts));
        offset[i] += effects.stateVariance * effect;
      }
    }
    const itself = own + own / tables.size;
    return {
      scale, offset, state,
      ownScale: tables.scale[itself] + effects.actionVariance,
      ownOffset: tables.offset[itself] + effects.stateVariance,
    };
  }

  const kappa = (a, atA, b, atB) => phi(squaredDistance(a, atA, b, atB, actionScales, actionCounts));
  const poolCorrelation = pool.map((action) => (
    Float64Array.from({ length: n }, (_, i) => kappa(action, 0, points, i * d + dS))
  ));

  // the posterior mean of a state as a function of the warped action
  function actionFunction(row) {
    const pull = new Float64Array(n);
    let base = constant;
    for (let i = 0; i < n; i++) {
      pull[i] = weights[i] * row.scale[i];
      base += weights[i] * row.offset[i];
    }
    const at = (action) => {
      const own = relative(row.state, action);
      let mean = base;
      for (let i = 0; i < n; i++) mean += pull[i] * kappa(own, 0, points, i * d + dS);
      return mean;
    };
    const pooled = () => (
      shear ? pool.map(at) : poolCorrelation.map((correlation) => base + dot(pull, correlation, n))
    );
    return { at, pooled, derivatives: (action) => derivatives(pull, relative(row.state, action)) };
  }

  // gradient and Hessian with respect to the numbers of a warped or relative action, not to its categories
  const numbers = actionScales.map((_, j) => j).filter((j) => !actionCounts[j]);
  function derivatives(pull, action) {
    const m = numbers.length, away = new Float64Array(m);
    const gradient = new Float64Array(m), hessian = new Float64Array(m * m);
    for (let i = 0; i < n; i++) {
      const squared = squaredDistance(action, 0, points, i * d + dS, actionScales, actionCounts);
      const { psi, chi } = slopes(squared);
      for (let a = 0; a < m; a++) {
        const j = numbers[a];
        away[a] = (action[j] - points[i * d + dS + j]) * actionScales[j];
      }
      for (let a = 0; a < m; a++) {
        const scale = actionScales[numbers[a]];
        gradient[a] -= pull[i] * psi * away[a] * scale;
        hessian[a * m + a] -= pull[i] * psi * scale * scale;
        for (let b = 0; b <= a; b++) {
          hessian[a * m + b] += pull[i] * chi * away[a] * away[b] * scale * actionScales[numbers[b]];
        }
      }
    }
    return { gradient, hessian };
  }

  // The Cholesky factor of the observations' covariance, row by row. Four rows at a time are several times faster than
  // one, and the page stays responsive in between. The last rows are padding.
  let factor = null;
  async function prepare() {
    const made = [];
    let began = performance.now();
    for (let first = 0; first < n; first += 4) {
      for (let i = first; i < first + 4; i++) made.push(i < n ? covarianceRow(i) : filler(i));
      const four = made.slice(first);
      for (let j = 0; j < first; j++) eliminate(made[j], j, ...four);
      for (let j = first; j < first + 4; j++) {
        made[j][j] = Math.sqrt(Math.max(made[j][j] - dot(made[j], made[j], j), 1e-300));
        for (let i = j + 1; i < first + 4; i++) made[i][j] = (made[i][j] - dot(made[i], made[j], j)) / made[j][j];
      }
      if (performance.now() - began > 16) {
        await new Promise((resume) => setTimeout(resume));
        began = performance.now();
      }
    }
    factor = made;
  }

  function filler(i) {
    const row = new Float64Array(i + 1);
    row[i] = 1;
    return row;
  }

  // the prior covariances of observation i with observations 0 to i, including its noise
  function covarianceRow(i) {
    const { scale, offset } = stateRow(points.subarray(i * d, i * d + dS), i + 1);
    const row = scale.map((value, j) => value * kappa(points, i * d + dS, points, j * d + dS) + offset[j]);
    row[i] += noise[i];
    if (effect) for (let j = 0; j <= i; j++) row[j] += seedEffect(i, j);
    return row;
  }

  // the prior covariance of the effects of seeds on observations i and j
  function seedEffect(i, j) {
    const shared = seeds[i] === seeds[j] ? 1 : effect.between;
    if (!effect.function || !shared) return shared * effect.constant;
    const { variance, stateScales: ofState, actionScales: ofAction } = effect.function;
    const inState = phi(squaredDistance(points, i * d, points, j * d, ofState, stateCounts));
    const inAction = phi(squaredDistance(points, i * d + dS, points, j * d + dS, ofAction, actionCounts));
    return shared * (effect.constant + variance * inState * inAction);
  }

  // L⁻¹ k for a warped action in a state, which gives variances and covariances; null until `prepare` is done
  function solve(row, action) {
    if (factor === null) return null;
    const there = relative(row.state, action);
    const solved = new Float64Array(n);
    for (let i = 0; i < n; i++) {
      const covariance = row.scale[i] * kappa(there, 0, points, i * d + dS) + row.offset[i];
      solved[i] = (covariance - dot(factor[i], solved, i)) / factor[i][i];
    }
    return { solved, there };
  }

  function covariance(row, a, b) {
    return row.ownScale * kappa(a.there, 0, b.there, 0) + row.ownOffset - dot(a.solved, b.solved, n);
  }

  // gradient and Hessian of the variance at the action that was solved for; the Hessian lacks its smaller term
  function varianceDerivatives(row, { solved, there }) {
    const pull = Float64Array.from(solved);
    for (let i = n - 1; i >= 0; i--) { // L⁻ᵀ
      pull[i] /= factor[i][i];
      for (let j = 0; j < i; j++) pull[j] -= factor[i][j] * pull[i];
    }
    return derivatives(pull.map((value, i) => -2 * value * row.scale[i]), there);
  }

  return { stateRow, actionFunction, kappa, numbers, prepare, solve, covariance, varianceDerivatives, size: n };
}

// w(x) = 1 - (1 - x^a)^b in column j, and its inverse; without exponents, numbers stay as they are
const EDGE = 1e-6; // slopes may be infinite at 0 and 1, so they are computed at least this far inside

function createWarp(exponents) {
  if (!exponents) return { warp: (x) => x, unwarp: (w) => w, slope: () => 1, curvature: () => 0 };
  const { a, b } = exponents, inside = (x) => Math.min(1 - EDGE, Math.max(EDGE, x));
  return {
    slope(x, j) { // w', inside
      const u = inside(x);
      return a[j] * b[j] * u ** (a[j] - 1) * (1 - u ** a[j]) ** (b[j] - 1);
    },
    curvature(x, j) { // w''/w'
      const u = inside(x);
      return (a[j] - 1) / u - ((b[j] - 1) * a[j] * u ** (a[j] - 1)) / (1 - u ** a[j]);
    },
    warp: (x, j) => 1 - (1 - Math.min(1, Math.max(0, x)) ** a[j]) ** b[j],
    unwarp: (w, j) => (1 - (1 - w) ** (1 / b[j])) ** (1 / a[j]),
  };
}

// entry j of four rows of a Cholesky factor, given row j
function eliminate(above, j, a, b, c, d) {
  let inA = 0, inB = 0, inC = 0, inD = 0;
  for (let k = 0; k < j; k++) {
    const value = above[k];
    inA += a[k] * value;
    inB += b[k] * value;
    inC += c[k] * value;
    inD += d[k] * value;
  }
  a[j] = (a[j] - inA) / above[j];
  b[j] = (b[j] - inB) / above[j];
  c[j] = (c[j] - inC) / above[j];
  d[j] = (d[j] - inD) / above[j];
}

// a dot product in four sums side by side, because each step of a single sum would wait for the one before
function dot(a, b, count) {
  let s0 = 0, s1 = 0, s2 = 0, s3 = 0, k = 0;
  for (; k + 3 < count; k += 4) {
    s0 += a[k] * b[k];
    s1 += a[k + 1] * b[k + 1];
    s2 += a[k + 2] * b[k + 2];
    s3 += a[k + 3] * b[k + 3];
  }
  for (; k < count; k++) s0 += a[k] * b[k];
  return s0 + s1 + s2 + s3;
}

function choice(unit, count) {
  return Math.min(count - 1, Math.max(0, Math.floor(unit * count)));
}

// the solution p of H p = -g on the free coordinates, after making H negative definite if it is not
function ascentDirection(gradient, hessian, free, m) {
  const index = free.flatMap((is, a) => (is ? [a] : []));
  const move = new Array(m).fill(0), k = index.length;
  if (!k) return move;
  const size = index.reduce((total, a) => total + Math.abs(hessian[a * m + a]), 1e-12) / k;
  for (let ridge = 0; ; ridge = ridge ? ridge * 10 : 1e-6 * size) {
    const lower = new Float64Array(k * k);
    let definite = true;
    for (let a = 0; a < k && definite; a++) {
      for (let b = 0; b <= a; b++) {
        let sum = -hessian[index[a] * m + index[b]] + (a === b ? ridge : 0);
        for (let c = 0; c < b; c++) sum -= lower[a * k + c] * lower[b * k + c];
        if (a === b && !(sum > 1e-12 * size)) { definite = false; break; }
        lower[a * k + b] = a === b ? Math.sqrt(sum) : sum / lower[b * k + b];
      }
    }
    if (!definite) continue;
    const p = index.map((a) => gradient[a]);
    for (let a = 0; a < k; a++) {
      for (let b = 0; b < a; b++) p[a] -= lower[a * k + b] * p[b];
      p[a] /= lower[a * k + a];
    }
    for (let a = k - 1; a >= 0; a--) {
      for (let b = a + 1; b < k; b++) p[a] -= lower[b * k + a] * p[b];
      p[a] /= lower[a * k + a];
    }
    index.forEach((a, place) => { move[a] = p[place]; });
    return move;
  }
}

// the numbers in a text that Python has packed them into
function floats(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Float64Array(bytes.buffer);
}

function rows(values, width) {
  return Array.from({ length: values.length / width }, (_, i) => values.subarray(i * width, (i + 1) * width));
}
