"use strict";
// The study's Gaussian process in the browser: what conbo's Python says about a state, said here, without a server.
//
//   k = A(s, s') κ(x, x') + B(s, s'),   A = T(c, c') φ(r),   B = U(c, c') φ(r)
//
// c is the combination of a state's categories, r the scaled distance of what else is in a state. Points are rows of
// the unit cube, states first. Rewards are to be maximised and standardised until `toReward`.
//
// Actions may be bent, as κ is a function of distances between bent ones. The bent unit cube is the unit cube, so all
// but what is asked and answered happens there: climbs need no slopes of the bend.

const STARTS = 10, FINALISTS = 3; // climbs that begin, and of these the best that go on

function createModel(record) {
  const { profile, constant, tables, stateScales, actionScales, stateCounts, actionCounts } = record;
  const dS = stateScales.length, dX = actionScales.length, d = dS + dX;
  const points = floats(record.points), weights = floats(record.weights), noise = floats(record.noise);
  const n = weights.length;
  const { bend, unbend } = createBend(record.actionExponents); // of one number of an action
  const bent = (action) => action.map(bend);
  for (let i = 0; i < n; i++) points.set(bent(points.subarray(i * d + dS, (i + 1) * d)), i * d + dS);
  const pool = rows(floats(record.pool), dX).map(bent);
  const integers = record.integers; // for every action a scale of integers, or null

  const { value: phi, slopes } = PROFILES[profile];

  // the combination of categories that the tables are about
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
      scale[i] = tables.scale[own + combinations[i]] * value;
      offset[i] = tables.offset[own + combinations[i]] * value;
    }
    const itself = own + own / tables.size;
    return { scale, offset, ownScale: tables.scale[itself], ownOffset: tables.offset[itself] };
  }

  const kappa = (a, atA, b, atB) => phi(squaredDistance(a, atA, b, atB, actionScales, actionCounts));
  const poolCorrelation = pool.map((action) => (
    Float64Array.from({ length: n }, (_, i) => kappa(action, 0, points, i * d + dS))
  ));

  // the posterior mean of a state as a function of the bent action
  function actionFunction(row) {
    const pull = new Float64Array(n);
    let base = constant;
    for (let i = 0; i < n; i++) {
      pull[i] = weights[i] * row.scale[i];
      base += weights[i] * row.offset[i];
    }
    const at = (action) => {
      let mean = base;
      for (let i = 0; i < n; i++) mean += pull[i] * kappa(action, 0, points, i * d + dS);
      return mean;
    };
    const pooled = () => poolCorrelation.map((correlation) => base + dot(pull, correlation, n));
    return { at, pooled, derivatives: (action) => derivatives(pull, action) };
  }

  // gradient and Hessian in the numbers of a bent action; categories do not move
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

  // Newton's method in the bent unit cube, from one action uphill
  function climb(f, start, steps) {
    const action = Float64Array.from(start);
    let value = f.at(action);
    for (let step = 0; step < steps && numbers.length; step++) {
      const { gradient, hessian } = f.derivatives(action);
      const m = numbers.length;
      const free = numbers.map((j, a) => !((action[j] <= 0 && gradient[a] < 0) || (action[j] >= 1 && gradient[a] > 0)));
      const move = ascentDirection(gradient, hessian, free, m);
      const longest = Math.max(...move.map(Math.abs), 1e-300);
      let length = Math.min(1, 0.3 / longest), gained = false;
      for (let half = 0; half < 12 && !gained; half++, length /= 2) {
        const next = Float64Array.from(action);
        numbers.forEach((j, a) => { next[j] = Math.min(1, Math.max(0, action[j] + length * move[a])); });
        const there = f.at(next);
        if (there > value) {
          gained = there - value > 1e-12 * (1 + Math.abs(value));
          value = there;
          action.set(next);
          if (!gained) return { action, value };
        }
      }
      if (!gained) break;
    }
    return { action, value };
  }

  // the best of the pool that are not each other's neighbours; a climb does not change categories, so these must differ
  function starts(scores) {
    const alike = (a, b) => sameChoices(a, b) && kappa(a, 0, b, 0) > 0.8;
    const chosen = [];
    for (const { action } of pool.map((action, p) => ({ action, score: scores[p] })).sort((a, b) => b.score - a.score)) {
      if (chosen.length === STARTS) break;
      if (!chosen.some((other) => alike(action, other))) chosen.push(action);
    }
    return chosen;
  }

  function sameChoices(a, b) {
    return actionCounts.every((count, j) => !count || choice(a[j], count) === choice(b[j], count));
  }

  // the action as it was before it was bent; integers to their nearest value, then one step down or up where that helps
  function polish(at, end) {
    let action = end.map(unbend).map((u, j) => (integers[j] ? integers[j].snap(u) : u)), value = at(action);
    integers.forEach((scale, j) => {
      for (const direction of scale ? [-1, 1] : []) {
        const moved = Float64Array.from(action);
        moved[j] = scale.neighbour(moved[j], direction);
        const there = at(moved);
        if (there > value) [action, value] = [moved, there];
      }
    });
    return { action, value };
  }

  function best(state) {
    const row = stateRow(state), f = actionFunction(row);
    const race = starts(f.pooled()).map((start) => climb(f, start, 3)).sort((a, b) => b.value - a.value);
    const at = (action) => f.at(bent(action));
    const ends = race.slice(0, FINALISTS).map(({ action }) => polish(at, climb(f, action, 40).action));
    const winner = ends.reduce((a, b) => (b.value > a.value ? b : a));
    return { row, at, action: winner.action, mean: winner.value };
  }

  // The Cholesky factor of the observations' covariance, row by row. Four rows are made at a time, which is several times
  // faster than one, and the page stays alive in between. The last rows are fillers that mean nothing.
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

  // the prior covariances of observation i with those up to it, and its noise
  function covarianceRow(i) {
    const { scale, offset } = stateRow(points.subarray(i * d, i * d + dS), i + 1);
    const row = scale.map((value, j) => value * kappa(points, i * d + dS, points, j * d + dS) + offset[j]);
    row[i] += noise[i];
    return row;
  }

  // L⁻¹ k of an action in a state, of which variances and covariances are made; null until `prepare` is done
  function solve(row, action) {
    if (factor === null) return null;
    const solved = new Float64Array(n), there = bent(action);
    for (let i = 0; i < n; i++) {
      const covariance = row.scale[i] * kappa(there, 0, points, i * d + dS) + row.offset[i];
      solved[i] = (covariance - dot(factor[i], solved, i)) / factor[i][i];
    }
    return { solved, there };
  }

  function covariance(row, a, b) {
    return row.ownScale * kappa(a.there, 0, b.there, 0) + row.ownOffset - dot(a.solved, b.solved, n);
  }

  // the standard deviation of the estimate, or null until `prepare` is done
  function std(row, action) {
    const one = solve(row, action);
    return one && Math.sqrt(Math.max(covariance(row, one, one), 0)) * record.scale;
  }

  // the same of the difference between two actions, which is smaller where both are known from the same observations
  function differenceStd(row, a, b) {
    const one = solve(row, a), other = solve(row, b);
    if (one === null) return null;
    const variance = covariance(row, one, one) + covariance(row, other, other) - 2 * covariance(row, one, other);
    return Math.sqrt(Math.max(variance, 0)) * record.scale;
  }

  const toReward = (mean) => record.sign * (record.shift + record.scale * mean);
  return { best, std, differenceStd, prepare, toReward, unbend, size: n };
}

// w(x) = 1 - (1 - x^a)^b in column j, and its inverse; without exponents, numbers stay as they are
function createBend(exponents) {
  if (!exponents) return { bend: (x) => x, unbend: (w) => w };
  const { a, b } = exponents;
  return {
    bend: (x, j) => 1 - (1 - Math.min(1, Math.max(0, x)) ** a[j]) ** b[j],
    unbend: (w, j) => (1 - (1 - w) ** (1 / b[j])) ** (1 / a[j]),
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

// in four sums at once: one would wait for itself
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

// H p = -g on the free coordinates, H made negative definite where it is not
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

// numbers as Python packed them
function floats(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Float64Array(bytes.buffer);
}

function rows(values, width) {
  return Array.from({ length: values.length / width }, (_, i) => values.subarray(i * width, (i + 1) * width));
}
