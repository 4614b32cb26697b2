"use strict";
// Correlations as functions of a squared scaled distance, as in conbo's models/profiles.py: φ = value, ψ = -φ'/r and
// χ = -ψ'/r, from which the gradient -ψ (a-b) and the Hessian -ψ I + χ (a-b)(a-b)ᵀ follow.

const PROFILES = {
  matern52: {
    value(squared) {
      const r = Math.sqrt(squared);
      return (1 + r + squared / 3) * Math.exp(-r);
    },
    slopes(squared) {
      const r = Math.sqrt(squared), third = Math.exp(-r) / 3;
      return { psi: (1 + r) * third, chi: third };
    },
  },
  "squared-exponential": {
    value: (squared) => Math.exp(-squared / 2),
    slopes(squared) {
      const value = Math.exp(-squared / 2);
      return { psi: value, chi: value };
    },
  },
};
