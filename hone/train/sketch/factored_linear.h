// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "hone/core/index.h"
#include "hone/train/interop.h"
#include "hone/train/nn/epilogue.h"
#include "hone/train/nn/ops.h"
#include "hone/train/sketch/factored_function.h"
#include "hone/train/sketch/layer_facts.h"
#include "hone/train/sketch/sketch_signs.h"

namespace hone::nn {

enum class FactorMode {
  Sketched,  // half of each factor are signs drawn from a seed, which are never trained or saved
  LowRank,   // both factors are trained
};

struct FactoredLinearOptions {
  Index in_features = 0, out_features = 0;
  Index rank = 0;   // rank of the weight; sketched: a multiple of 2 * terms
  Index terms = 1;  // sketched: number of averaged products of each of the two kinds
  FactorMode mode = FactorMode::Sketched;
  bool bias = true;
  // The seed of the signs and of a new layer's weights. Two layers of a model should not share one.
  std::uint64_t seed = 0;
  bool recompute = false;  // backward passes recompute the hidden columns
  Epilogue epilogue = {};
  MatmulBackend matmul = MatmulBackend::Auto;  // for f32 on the CPU

  Index width() const { return mode == FactorMode::Sketched ? rank / 2 : rank; }
  FactorSize size() const { return {in_features, out_features, rank}; }
  SketchRecipe recipe() const { return {seed, terms, rank / (2 * terms)}; }
};

// The tensors of a layer: `first` and `second` are s1 and s2, or a and b.
struct FactoredWeights {
  torch::Tensor first, second;  // [width, in_features], [width, out_features]
  torch::Tensor bias;           // [out_features], or undefined
  // Replaces the seed by given signs: pack_signs of u1 [width, out_features] and then u2 [width,
  // in_features], as one sequence. Otherwise undefined.
  torch::Tensor signs;
};

// The fixed matrices u1 [width, out] and u2 [width, in] of a sketched layer's seed, with entries
// ±1/√low_rank, on the CPU.
std::pair<torch::Tensor, torch::Tensor> fixed_signs_of(const FactoredLinearOptions& options,
                                                       at::ScalarType type);

// y = epilogue(x W + bias), where W [in, out] has rank `rank`, as two products. Maps x [...,
// in_features] to y [..., out_features].
//
// Sketched: W = 1/(2 terms) Σ_t (s1_tᵀ u1_t + u2_tᵀ s2_t). s1 [width, in] and s2 [width, out] are
// trained, u1 and u2 have fixed entries ±1/√low_rank, and term t has low_rank rows of each.
// Parameters: s1, s2 and bias. The buffer `sketch` contains the recipe of u1 and u2, or `signs`
// contains their bits. LowRank: W = aᵀ b. Parameters: a [rank, in], b [rank, out] and bias.
//
// The trained rows share memory with the matrices that are multiplied. If to(), a loader or
// anything else moves a parameter to other memory, or another recipe is loaded, the next call of a
// member assembles that memory again. Such a call must not run in two threads at once. The rank is
// padded with zeros to a multiple of 16.
//
// f32 on the CPU uses kernels::multiply for few rows if matmul is Auto, otherwise the products of
// nn/matmul.h. It stays f32 under autocast. Everything else uses LibTorch in the type of x or of
// autocast.
class FactoredLinearImpl : public torch::nn::Cloneable<FactoredLinearImpl> {
 public:
  // Creates a new layer. Draws weight and bias from uniform(±1/√in_features), then fits a sketched
  // layer by projection and a low-rank one by SVD. Throws Error{InvalidArgument} for sizes out of
  // range.
  explicit FactoredLinearImpl(const FactoredLinearOptions& options);
  // Creates a layer with copies of these weights. Throws Error{InvalidArgument} for other shapes.
  FactoredLinearImpl(const FactoredLinearOptions& options, const FactoredWeights& weights);

  torch::Tensor forward(const torch::Tensor& x);

  // W as a weight of LibTorch [out_features, in_features].
  torch::Tensor effective_weight();
  // The factors of W without padding, y = (x aᵀ) b: a [rank, in], b [rank, out]. They share the
  // layer's memory.
  std::pair<torch::Tensor, torch::Tensor> factors();
  // Returns u1 and u2 like fixed_signs_of(). Sketched layers only.
  std::pair<torch::Tensor, torch::Tensor> fixed_signs() const;

  LayerFacts facts() const;
  const FactoredLinearOptions& options() const { return options_; }
  const torch::Tensor& first() const { return first_; }
  const torch::Tensor& second() const { return second_; }
  const torch::Tensor& bias() const { return bias_; }
  const torch::Tensor& signs() const { return signs_; }
  // The recipe of a sketched layer's signs. After a load, options() only has it once the layer has
  // run.
  SketchRecipe recipe() const { return SketchRecipe::from_bytes(sketch_); }

  // Draws new weights.
  void reset() override;
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;
  // Conversions also move the fixed signs, and leave the recipe in bytes.
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;
  // Saves only the trained rows, not the memory that contains them.
  void save(torch::serialize::OutputArchive& archive) const override;

 private:
  struct Quiet {};  // for copies: does not warn again
  FactoredLinearImpl(Quiet, const FactoredLinearOptions& options, const FactoredWeights& weights);

  bool is_sketched() const { return options_.mode == FactorMode::Sketched; }
  void register_weights(const FactoredWeights& weights);
  const torch::Tensor& sign_source() const { return signs_.defined() ? signs_ : sketch_; }
  bool is_assembled() const;
  void read_recipe();
  void assemble();

  FactoredLinearOptions options_;
  torch::Tensor first_, second_, bias_, sketch_, signs_;
  detail::FactorRows rows_;
  Sources seen_signs_;  // in rows_
};
TORCH_MODULE(FactoredLinear);

}  // namespace hone::nn
