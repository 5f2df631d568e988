// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "hone/core/index.h"

namespace hone {

// The quantities that determine the duration of a step.
struct StepShape {
  Index decode_rows = 0;     // rows of sequences that decode, drafts included
  Index prefill_tokens = 0;  // all other rows
  Index kv_tokens = 0;       // cached tokens that rows read: the sum of position + 1 over the rows
};

// Predicts the seconds of a step as a + b * decode_rows + c * prefill_tokens + d * kv_tokens.
//
// The coefficients are fitted to observed steps by least squares of the *relative* error. An
// observation loses half of its weight every 16 steps of its kind: with or without prefill. So a
// long prompt, during which every step has prefill, does not displace the observations of decoding
// alone. No coefficient is negative: a term that the data would make negative is left out. Before
// the first observation, and in directions that the data do not determine, a weak prior of 1 ms per
// row applies.
class CostModel {
 public:
  CostModel();

  double predict(const StepShape& shape) const;
  // Ignores durations that are not positive and finite.
  void observe(const StepShape& shape, double seconds);

 private:
  static constexpr std::size_t kTerms = 4;
  using Vector = std::array<double, kTerms>;

  struct Sums {
    std::array<Vector, kTerms> moments{};  // the weighted sum of outer products of the features
    Vector targets{};                      // the weighted sum of features times seconds
  };

  static Vector features(const StepShape& shape);
  void fit();

  Sums decodes_, prefills_;  // sums over steps without and with prefill
  Vector coefficients_{};
};

}  // namespace hone
