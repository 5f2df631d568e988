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
#include "hone/train/nn/ops.h"
#include "hone/train/sketch/epilogue.h"
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
  Index rank = 0;   // of the weight; of a sketched layer, a multiple of 2 * terms
  Index terms = 1;  // of a sketched layer: how many products it averages, for each of two kinds
  FactorMode mode = FactorMode::Sketched;
  bool bias = true;
  // The seed of the signs and of a new layer's weights. Two layers of a model should not share one.
  std::uint64_t seed = 0;
  bool recompute = false;  // backward passes compute the hidden columns again
  Epilogue epilogue = {};
  MatmulBackend matmul = MatmulBackend::Auto;  // of f32 on the CPU

  Index width() const { return mode == FactorMode::Sketched ? rank / 2 : rank; }
  FactorSize size() const { return {in_features, out_features, rank}; }
  SketchRecipe recipe() const { return {seed, terms, rank / (2 * terms)}; }
};

// What a layer is made of: `first` and `second` are s1 and s2, or a and b.
struct FactoredWeights {
  torch::Tensor first, second;  // [width, in_features], [width, out_features]
  torch::Tensor bias;           // [out_features], or undefined
  // Replaces the seed by given signs: pack_signs of u1 [width, out_features], then of u2 [width,
  // in_features], as one sequence. Undefined otherwise.
  torch::Tensor signs;
};

// The fixed matrices u1 [width, out] and u2 [width, in] of a sketched layer's seed, with entries
// ±1/√low_rank, on the CPU.
std::pair<torch::Tensor, torch::Tensor> fixed_signs_of(const FactoredLinearOptions& options,
                                                       at::ScalarType type);

// y = epilogue(x W + bias), where W [in, out] has rank `rank`, as two products. The last dimension
// of x [..., in_features] is replaced by that of y.
//
// Sketched: W = 1/(2 terms) Σ_t (s1_tᵀ u1_t + u2_tᵀ s2_t), where s1 [width, in] and s2 [width, out]
// are trained, u1 and u2 have fixed entries ±1/√low_rank, and term t has low_rank rows of each. The
// parameters are s1, s2 and bias; the buffer `sketch` holds the recipe of u1 and u2, or `signs`
// their bits. LowRank: W = aᵀ b with the parameters a [rank, in], b [rank, out] and bias.
//
// The trained rows are parts of the memory that is multiplied. Where to(), a loader or anything
// else gives a parameter other memory, or another recipe is loaded, the next call of a member
// assembles that memory again; such a call must not run in two threads at once. The rank is padded
// to a multiple of 16 there, with zeros. f32 on the CPU takes kernels::multiply for few rows where
// no library is asked for, otherwise the products of nn/matmul.h, and stays f32 under autocast; all
// else takes LibTorch's in the type of x or of autocast.
class FactoredLinearImpl : public torch::nn::Cloneable<FactoredLinearImpl> {
 public:
  // A new layer: weight and bias from uniform(±1/√in_features), then the fit of a sketched layer by
  // projection, of a low-rank one by SVD. Error{InvalidArgument} for sizes out of range.
  explicit FactoredLinearImpl(const FactoredLinearOptions& options);
  // A layer of these weights, which are copied. Error{InvalidArgument} for other shapes.
  FactoredLinearImpl(const FactoredLinearOptions& options, const FactoredWeights& weights);

  torch::Tensor forward(const torch::Tensor& x);

  // W as a weight of LibTorch [out_features, in_features].
  torch::Tensor effective_weight();
  // The factors of W without padding, y = (x aᵀ) b: a [rank, in], b [rank, out]. They share the
  // layer's memory.
  std::pair<torch::Tensor, torch::Tensor> factors();
  // The layer's u1 and u2 as fixed_signs_of; only of a sketched layer.
  std::pair<torch::Tensor, torch::Tensor> fixed_signs() const;

  LayerFacts facts() const;
  const FactoredLinearOptions& options() const { return options_; }
  const torch::Tensor& first() const { return first_; }
  const torch::Tensor& second() const { return second_; }
  const torch::Tensor& bias() const { return bias_; }
  const torch::Tensor& signs() const { return signs_; }
  // The recipe of a sketched layer's signs. options() has it too, once a loaded layer has run.
  SketchRecipe recipe() const { return SketchRecipe::from_bytes(sketch_); }

  // Draws the weights anew.
  void reset() override;
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;
  // Conversions also move the fixed signs, and leave the recipe in bytes.
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;
  // Saves the trained rows alone, not the memory that they are part of.
  void save(torch::serialize::OutputArchive& archive) const override;

 private:
  struct Quiet {};  // no warning: a copy of a layer that has warned
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
  torch::Tensor seen_sketch_;  // what rows_ were assembled from
  std::int64_t seen_version_ = 0;
};
TORCH_MODULE(FactoredLinear);

}  // namespace hone::nn
