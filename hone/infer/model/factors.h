// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/core/thread/executor.h"
#include "hone/model_io/model_file.h"
#include "hone/model_io/tensor_plan.h"

namespace hone::infer {

// The two matrices of a factored product, y = B (A x), ready to be packed. They are views of the
// file or of memory that this struct owns, so it must outlive their use.
struct Factors {
  StoredMatrix a;                          // [rank, inputs]
  std::vector<StoredMatrix> b;             // [rows of the part, rank] for each part of the product
  std::vector<std::vector<float>> biases;  // for each part; may be empty
  std::vector<std::vector<float>> memory;
};

// Reads a factored layer of the file as `product` (hone::nn::FactoredLinear). LowRank stores a and
// bᵀ. Sketched stores s1 and s2, and draws u1 and u2 of the same shapes from its seed:
//   y = (x s1ᵀ) u1 / (2 terms) + (x u2ᵀ) s2 / (2 terms),
// where the entries of u1 and u2 are ±1 / sqrt(rank / (2 terms)).
Factors read_factors(const model_io::ModelFile& file, const model_io::FactoredLayer& layer,
                     const model_io::LayerProduct& product, Executor& executor);

}  // namespace hone::infer
