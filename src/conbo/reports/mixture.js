"use strict";
// The study's model in the browser: a mixture of Gaussian processes (the members), weighted by how probable they are,
// and the best action of a state. With the members' weights w_j, means m_j and variances v_j:
//
//   m = Σ w_j m_j        v = Σ w_j (v_j + (m_j - m)²)
//
// A member may model mapped rewards (output_maps.js). The mean of the reward then depends on the variance, so it is
// approximate until `prepare` is done.
//
// Searches run over actions that are warped by the most probable member, the leader. Warped actions lie in the unit cube
// too, so a model of one member needs no slopes of the warp.

const STARTS = 10, FINALISTS = 3; // number of local searches with few steps, and of the best of these that are continued

function createModel(record) {
  const several = record.members ?? [record], shares = record.members ? record.weights : [1];
  const actionCounts = record.actionCounts;
  const integers = record.integers; // for every action its parameter if it is an integer, else null
  const leader = createWarp(several[0].actionExponents), { warp, unwarp } = leader;
  const warped = (action) => action.map(warp);
  const isAsLeader = (own) => JSON.stringify(own.actionExponents) === JSON.stringify(several[0].actionExponents);
  const members = several.map((own) => createMember({ ...record, ...own }, isAsLeader(own) ? null : leader));
  const { kappa, numbers } = members[0].process;
  const pool = rows(floats(record.pool), actionCounts.length).map(warped);
  const average = (values) => values.reduce((sum, value, j) => sum + shares[j] * value, 0);

  // the mean reward in one state as a function of the warped action; `parts` are the members' predictions in this state
  function meanFunction(parts, rough) {
    return {
      at: (action) => average(parts.map((part) => part.mean(action, rough))),
      pooled() {
        const all = parts.map((part) => part.pooled());
        return pool.map((_, p) => average(all.map((values) => values[p])));
      },
      derivatives(action) {
        const all = parts.map((part) => part.derivatives(action, rough));
        const sum = (name) => all[0][name].map((_, k) => average(all.map((one) => one[name][k])));
        return { gradient: sum("gradient"), hessian: sum("hessian") };
      },
    };
  }

  // the local maximum of f that Newton's method reaches from a warped action; it may hold the integers fixed
  function climb(f, start, steps, holdsIntegers = false) {
    const action = Float64Array.from(start);
    let value = f.at(action);
    for (let step = 0; step < steps && numbers.length; step++) {
      const { gradient, hessian } = f.derivatives(action);
      const m = numbers.length;
      const isHeld = (j) => holdsIntegers && integers[j] !== null;
      const isOutward = (j, a) => (action[j] <= 0 && gradient[a] < 0) || (action[j] >= 1 && gradient[a] > 0);
      const free = numbers.map((j, a) => !isHeld(j) && !isOutward(j, a));
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

  // The best actions of the pool that are not similar to each other. A climb does not change categories, so actions with
  // other categories are never similar.
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

  // Undoes the warp of an action, and rounds integers to the nearest value, or to the value one step below or above if
  // that is better. Real parameters follow, because their best values depend on the integers.
  function polish(f, end) {
    const valued = (action) => ({ action, value: f.at(warped(action)) });
    const better = (a, b) => (b.value > a.value ? b : a);
    function settled(rounded) {
      if (!integers.some((scale) => scale)) return valued(rounded);
      const climbed = climb(f, warped(rounded), 40, true).action.map(unwarp);
      return better(valued(rounded), valued(climbed.map((u, j) => (integers[j] ? rounded[j] : u))));
    }
    let found = settled(end.map(unwarp).map((u, j) => (integers[j] ? integers[j].snap(u) : u)));
    integers.forEach((scale, j) => {
      for (const direction of scale ? [-1, 1] : []) {
        const moved = Float64Array.from(found.action);
        moved[j] = scale.neighbor(moved[j], direction);
        found = better(found, settled(moved));
      }
    });
    return found;
  }

  function best(state) {
    const parts = members.map((member) => member.at(state));
    const rough = meanFunction(parts, true), f = meanFunction(parts, false);
    const contenders = starts(rough.pooled()).map((start) => climb(rough, start, 3).action);
    const ranked = contenders.map((action) => ({ action, value: f.at(action) })).sort((a, b) => b.value - a.value);
    const ends = ranked.slice(0, FINALISTS).map(({ action }) => polish(f, climb(f, action, 40).action));
    const winner = ends.reduce((a, b) => (b.value > a.value ? b : a));
    return winner.action;
  }

  // predictions for a state: the mean reward of any action, its standard deviation, and that of a difference
  function about(state) {
    const parts = members.map((member) => member.at(state)), f = meanFunction(parts, false);
    return { at: (action) => f.at(warped(action)), std: std(parts), differenceStd: differenceStd(parts) };
  }

  // the standard deviation of the estimate as a function of the action, or null until `prepare` is done
  function std(parts) {
    return (action) => {
      const known = parts.map((part) => part.moments(warped(action)));
      if (known.includes(null)) return null;
      const mean = average(known.map((one) => one.mean));
      return record.scale * Math.sqrt(average(known.map((one) => one.variance + (one.mean - mean) ** 2)));
    };
  }

  // the standard deviation of the difference between two actions; small if both are known from the same observations
  function differenceStd(parts) {
    return (one, other) => {
      const known = parts.map((part) => part.difference(warped(one), warped(other)));
      if (known.includes(null)) return null;
      const mean = average(known.map((part) => part.mean));
      return record.scale * Math.sqrt(average(known.map((part) => part.variance + (part.mean - mean) ** 2)));
    };
  }

  async function prepare() {
    for (const { process } of members) await process.prepare();
  }

  const toReward = (mean) => record.sign * (record.shift + record.scale * mean);
  return { best, about, prepare, toReward, unwarp, size: members[0].process.size };
}

// One member of a mixture. Its functions take actions that are warped as by the leader. `leader` is null if the member
// warps actions in the same way.
function createMember(record, leader) {
  const process = createProcess(record), { numbers } = process, m = numbers.length;
  const own = createWarp(record.actionExponents), { unwarp } = leader ?? own;
  const inOwn = (action) => (leader ? action.map(unwarp).map(own.warp) : action);
  const counts = [...record.stateCounts, ...record.actionCounts], dS = record.stateCounts.length;
  const output = record.output ? createOutputMap(record.output) : null;
  const noise = record.output ? createNoise(record.output.noise, counts) : null;
  const pool = rows(floats(record.pool), counts.length - dS);

  // the member's predictions for one state
  function at(state) {
    const row = process.stateRow(state), f = process.actionFunction(row);
    const noiseAt = (action) => noise.at([...state, ...action]);

    // the mean and variance of the process, and the variance of the noise; null until `prepare` is done
    function inside(action) {
      const solved = process.solve(row, inOwn(action));
      if (solved === null) return null;
      const variance = Math.max(process.covariance(row, solved, solved), 0);
      return { solved, mean: f.at(inOwn(action)), variance, noise: output ? noiseAt(action.map(unwarp)) : 0 };
    }

    // the mean and variance of the expected reward
    function ofReward(known) {
      return output && known ? output.moments(known.mean, known.variance, known.noise) : known;
    }

    // The mean reward. With mapped rewards it is approximate until `prepare` is done: the variance counts as zero.
    function mean(action, rough) {
      if (!output) return f.at(inOwn(action));
      const exact = rough ? null : ofReward(inside(action));
      return (exact ?? output.rough(f.at(inOwn(action)), noiseAt(action.map(unwarp)))).mean;
    }

    function pooled() {
      const means = f.pooled();
      return output ? means.map((value, p) => output.rough(value, noiseAt(pool[p])).mean) : means;
    }

    // gradient and Hessian of the mean; with mapped rewards the Hessian lacks some small terms
    function derivatives(action, rough) {
      const plain = f.derivatives(inOwn(action));
      return inLeader(output ? mapped(plain, action, rough ? null : inside(action)) : plain, action);
    }

    function mapped(plain, action, known) {
      const units = action.map(unwarp), point = [...state, ...units];
      const { inMean, inVariance, inNoise } = known
        ? ofReward(known) : output.rough(f.at(inOwn(action)), noise.at(point));
      const spread = known && process.varianceDerivatives(row, known.solved);
      const gradient = plain.gradient.map((slope, a) => {
        const j = numbers[a], ofNoise = noise.slope(point, dS + j) / own.slope(units[j], j);
        return inMean * slope + inNoise * ofNoise + (spread ? inVariance * spread.gradient[a] : 0);
      });
      const hessian = plain.hessian.map((entry, k) => {
        const squared = 2 * plain.gradient[Math.floor(k / m)] * plain.gradient[k % m]; // d²/dμ² is 2 d/dv
        return inMean * entry + (spread ? inVariance * (spread.hessian[k] + squared) : 0);
      });
      return { gradient, hessian };
    }

    // the mean and variance of the difference between two actions
    function difference(one, other) {
      const both = [inside(one), inside(other)];
      if (both.includes(null)) return null;
      const [a, b] = both.map(ofReward), between = process.covariance(row, both[0].solved, both[1].solved);
      const slopes = both.map((known) => (output ? output.slope(known.mean, known.variance, known.noise) : 1));
      const variance = a.variance + b.variance - 2 * slopes[0] * slopes[1] * between;
      return { mean: a.mean - b.mean, variance: Math.max(variance, 0) };
    }

    return { mean, pooled, derivatives, difference, moments: (action) => ofReward(inside(action)) };
  }

  // converts derivatives in the member's own warped action to derivatives in the leader's
  function inLeader({ gradient, hessian }, action) {
    if (!leader) return { gradient, hessian };
    const units = action.map(unwarp), stretch = numbers.map((j) => own.slope(units[j], j) / leader.slope(units[j], j));
    const curvature = numbers.map((j, a) => (
      (stretch[a] * (own.curvature(units[j], j) - leader.curvature(units[j], j))) / leader.slope(units[j], j)
    ));
    return {
      gradient: gradient.map((slope, a) => slope * stretch[a]),
      hessian: hessian.map((entry, k) => {
        const a = Math.floor(k / m), b = k % m;
        return entry * stretch[a] * stretch[b] + (a === b ? gradient[a] * curvature[a] : 0);
      }),
    };
  }

  return { process, at };
}
