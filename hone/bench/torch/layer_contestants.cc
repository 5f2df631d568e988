// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/layer_contestants.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/autograd.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>

#include "hone/core/check.h"
#include "hone/train/exact_scope.h"
#include "hone/train/linalg/randomized_svd.h"
#include "hone/train/nn/linear.h"
#include "hone/train/nn/ops.h"
#include "hone/train/sketch/convert.h"
#include "hone/train/sketch/frozen_linear.h"
#include "hone/train/sketch/sketched_conv.h"

namespace hone::bench {
namespace {

using torch::Tensor;

constexpr Index kBytes = sizeof(float);
constexpr Index kRankMultiple = 16;    // to which FactoredLinear pads
constexpr Index kMostExactSvd = 1024;  // the exact SVD of a matrix of 4096 x 4096 takes minutes

Tensor seeded_normal(at::IntArrayRef sizes, std::uint64_t seed) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(sizes, generator, at::TensorOptions().dtype(at::kFloat));
}

// What every row of a layer says about its numbers. stored_count is that of a file that holds the
// signs too, as those of the sketched layers' publication do.
Json size_facts(const std::string& mode, const LayerShape& shape, const LayerRank& rank) {
  const bool is_sketched = mode == "sketched" || mode == "bmm";
  const nn::FactorSize size = shape.size(rank.rank);
  Json facts{{"mode", mode}};
  facts["num_terms"] = is_sketched ? Json(rank.terms) : Json();
  facts["low_rank"] = is_sketched ? Json(rank.low_rank) : Json();
  facts["rank"] = rank.rank > 0 ? Json(rank.rank) : Json();
  facts["stored_count"] = (rank.rank > 0 ? size.numbers() : shape.dense_numbers()) + shape.outputs;
  facts["break_even"] = rank.rank > 0 ? Json(size.break_even()) : Json();
  facts["past_break_even"] = rank.rank > 0 && size.is_past_break_even();
  return facts;
}

void add_layer_facts(const nn::LayerFacts& layer, Json& facts) {
  facts["trainable_count"] = layer.trainable;
  facts["stored_bytes"] = layer.stored_bytes;
}

MemoryLine line(Index fixed, Index row) { return {kBytes * fixed, kBytes * row}; }

Index peak_of(const std::vector<MemoryLine>& lines, Index batch) {
  Index peak = 0;
  for (const MemoryLine& one : lines) peak = std::max(peak, one.fixed + one.row * batch);
  return peak;
}

// Without the copies of operands that oneDNN makes in LibTorch's memory; MKL's are its own.
// The input, the hidden columns and the output at once. In the backward pass also the gradient of
// the output, that of the input, and either those of the hidden columns with a copy of the trained
// ones, or both weights' gradients.
void predict_factored(const LayerShape& shape, Index rank, Index width, LayerContestant& layer) {
  const Index in = shape.inputs, out = shape.outputs;
  const Index padded = (rank + kRankMultiple - 1) / kRankMultiple * kRankMultiple;
  const Index copied = width == padded ? 0 : width;  // the trained columns of a gradient
  layer.forward_peak = {line(0, in + padded + out)};
  layer.train_peak = {line(width * in, 2 * in + 2 * out + width + copied + padded),
                      line(width * (in + out) + out, 2 * in + 2 * out + width)};
}

void predict_dense(const LayerShape& shape, LayerContestant& layer) {
  const Index in = shape.inputs * shape.input_pixels();
  const Index out = shape.outputs * shape.output_pixels();
  layer.forward_peak = {line(0, in + out)};
  layer.train_peak = {line(shape.dense_numbers() + shape.outputs, 2 * in + 2 * out)};
}

// The images of the hidden channels are kept by the layer that trains both factors.
void predict_conv(const LayerShape& shape, Index rank, bool trains_both, LayerContestant& layer) {
  const Index in = shape.inputs * shape.input_pixels();
  const Index out = shape.outputs * shape.output_pixels(), hidden = rank * shape.output_pixels();
  const Index inner = shape.size(1).inputs * rank, outer = trains_both ? shape.outputs * rank : 0;
  layer.forward_peak = {line(0, in + hidden + out)};
  layer.train_peak = {
      line(inner + outer + shape.outputs, 2 * in + 2 * out + (trains_both ? 2 : 1) * hidden)};
}

// Three products of all terms, which their sum over the terms follows.
void predict_batched(const LayerShape& shape, const LayerRank& rank, LayerContestant& layer) {
  const Index in = shape.inputs, out = shape.outputs, width = rank.rank / 2;
  const Index forward = in + 3 * rank.terms * out + out;
  layer.forward_peak = {line(0, forward)};
  layer.train_peak = {line(0, forward + width),
                      line(width * (in + out), in + 3 * out + 2 * width + 2 * rank.terms * in)};
}

}  // namespace

LayerMemory read_memory(const LayerContestant& layer, const LayerShape& shape, Index batch,
                        bool train) {
  const memory::MemoryMeter meter;
  run_forward(layer, layer_input(shape, 1, 0));  // layers pack their weights in the first call
  meter.reset_peak();
  const memory::MemoryUse before = meter.use();
  const auto held = [&] { return meter.use().current - before.current; };
  LayerMemory memory;
  Tensor x = layer_input(shape, batch, 1);
  if (!train) {
    const at::NoGradGuard no_grad;
    const Tensor y = layer.forward(x);
    memory.activations = held();
  } else {
    x.set_requires_grad(true);
    std::vector<Tensor> gradients;
    {
      const Tensor y = layer.forward(x);
      memory.activations = held();
      std::vector<Tensor> inputs = layer.trained;
      inputs.push_back(x);
      gradients = torch::autograd::grad({y}, inputs, {at::ones_like(y)});
    }
    memory.gradients = held() - static_cast<Index>(x.nbytes());
  }
  memory.peak = layer.weight_bytes + meter.use().peak - before.current;
  return memory;
}

Index predicted_peak(const LayerContestant& layer, Index batch, bool train) {
  return layer.weight_bytes + peak_of(train ? layer.train_peak : layer.forward_peak, batch);
}

Tensor layer_input(const LayerShape& shape, Index batch, std::uint64_t seed) {
  if (!shape.is_conv()) return seeded_normal({batch, shape.inputs}, seed);
  return seeded_normal({batch, shape.inputs, shape.height, shape.width}, seed);
}

void run_forward(const LayerContestant& layer, const Tensor& x) {
  const at::NoGradGuard no_grad;
  layer.forward(x);
}

std::vector<Tensor> run_train(const LayerContestant& layer, const Tensor& x,
                              const Tensor& gradient) {
  std::vector<Tensor> inputs = layer.trained;
  inputs.push_back(x);
  return torch::autograd::grad({layer.forward(x)}, inputs, {gradient});
}

BatchedLayer BatchedLayer::of(const nn::FactoredLinearImpl& layer) {
  const nn::FactoredLinearOptions& options = layer.options();
  const Index terms = options.terms, low_rank = options.recipe().low_rank;
  const auto [u1, u2] = layer.fixed_signs();
  const auto by_term = [&](const Tensor& rows) {
    return rows.detach().view({terms, low_rank, -1});
  };
  const auto copy = [](const Tensor& tensor, bool trained) {
    return tensor.clone(at::MemoryFormat::Contiguous).set_requires_grad(trained);
  };
  BatchedLayer out{.s1 = copy(by_term(layer.first()).transpose(1, 2), true),
                   .u1 = copy(by_term(u1), false),
                   .u2 = copy(by_term(u2).transpose(1, 2), false),
                   .s2 = copy(by_term(layer.second()), true),
                   .bias = {}};
  if (options.bias) out.bias = copy(layer.bias().detach(), true);
  return out;
}

Tensor BatchedLayer::forward(const Tensor& x) const {
  const Index terms = s1.size(0);
  const Tensor inputs = x.unsqueeze(0).expand({terms, x.size(0), x.size(1)});
  const Tensor first = at::bmm(at::bmm(inputs, s1), u1);
  const Tensor second = at::bmm(at::bmm(inputs, u2), s2);
  const Tensor mean = (first + second).sum(0).div_(2.0 * static_cast<double>(terms));
  return bias.defined() ? mean.add_(bias) : mean;
}

Tensor BatchedLayer::effective_weight() const {
  const ExactScope exact;
  const at::NoGradGuard no_grad;
  // The terms are parts of one depth, so that no product [in, out] of a single one is stored.
  const auto rows = [](const Tensor& right) { return right.flatten(0, 1); };
  const auto columns = [](const Tensor& left) { return left.transpose(1, 2).flatten(0, 1); };
  Tensor sum = at::mm(rows(u1).t(), columns(s1));
  sum.addmm_(rows(s2).t(), columns(u2));
  return sum.div_(2.0 * static_cast<double>(s1.size(0)));
}

LayerMaker::LayerMaker(const LayerShape& shape, const LayerPlan& plan, Index most_rank,
                       std::uint64_t seed)
    : shape_(shape), fits_(plan.fits), most_rank_(most_rank), matmul_(plan.matmul), seed_(seed) {
  const auto inputs = static_cast<double>(shape.size(1).inputs);
  std::vector<std::int64_t> sizes{shape.outputs, shape.inputs};
  if (shape.is_conv()) sizes.insert(sizes.end(), 2, shape.kernel);
  weight_ = seeded_normal(sizes, seed);
  weight_.div_(std::sqrt(inputs));
  bias_ = seeded_normal({shape.outputs}, seed + 1);
}

double LayerMaker::error_of(const Tensor& weight) const {
  return ((weight - weight_).norm() / weight_.norm()).item<double>();
}

std::string LayerMaker::sketched_fit() const {
  return contains(fits_, "projection") ? "projection" : "random";
}

LayerContestant LayerMaker::dense(const std::string& name) {
  const Index before = meter_.use().current;
  const Tensor weight = weight_.clone().set_requires_grad(true);
  const Tensor bias = bias_.clone().set_requires_grad(true);
  LayerContestant layer{.name = name,
                        .ours = false,
                        .trained = {weight, bias},
                        .facts = size_facts(name, shape_, {})};
  if (shape_.is_conv()) {
    layer.forward = [weight, bias, shape = shape_](const Tensor& x) {
      return at::conv2d(x, weight, bias, shape.stride, shape.padding);
    };
  } else if (name == "dense_hone") {
    layer.forward = [weight, bias, matmul = matmul_](const Tensor& x) {
      return nn::linear(x, weight, bias, matmul);
    };
  } else {
    layer.forward = [weight, bias](const Tensor& x) { return at::linear(x, weight, bias); };
  }
  const Index numbers = shape_.dense_numbers();
  layer.facts.update({{"fit", nullptr},
                      {"trainable_count", numbers + shape_.outputs},
                      {"stored_bytes", kBytes * (numbers + shape_.outputs)},
                      {"rel_error", 0.0}});
  layer.forward_flops = 2 * numbers * shape_.output_pixels();
  layer.backward_flops = 2 * layer.forward_flops;
  layer.weight_bytes = meter_.use().current - before;
  predict_dense(shape_, layer);
  return layer;
}

nn::FactoredLinear LayerMaker::sketched_linear(const LayerRank& rank,
                                               const std::string& fit) const {
  nn::Linear dense(1, 1, /*has_bias=*/true, matmul_);
  dense->weight.set_data(weight_);
  dense->bias.set_data(bias_);
  return nn::from_linear(*dense, {.mode = nn::FactorMode::Sketched,
                                  .fit = fit == "random" ? nn::Fit::Random : nn::Fit::Projection,
                                  .rank = rank.rank,
                                  .terms = rank.terms,
                                  .seed = seed_});
}

bool LayerMaker::is_svd_exact() const {
  const Index side = std::min(shape_.inputs, shape_.outputs);
  return sketch::is_fit_svd_exact(side, most_rank_) &&
         (side <= kMostExactSvd || 4 * most_rank_ > side);
}

const sketch::FactorPair& LayerMaker::svd() {
  if (svd_) return *svd_;
  if (is_svd_exact()) return svd_.emplace(sketch::fit_svd(weight_, most_rank_));
  const linalg::Svd svd = linalg::randomized_svd(weight_, {.rank = most_rank_, .seed = seed_});
  const Tensor root = svd.s.sqrt();
  return svd_.emplace((svd.v * root).t().contiguous(), (svd.u * root).t().contiguous());
}

// The first rows of the largest rank's factors are those of a smaller one.
nn::FactoredLinear LayerMaker::low_rank_linear(const LayerRank& rank) {
  const auto& [a, b] = svd();
  return nn::FactoredLinear(
      nn::FactoredLinearOptions{.in_features = shape_.inputs,
                                .out_features = shape_.outputs,
                                .rank = rank.rank,
                                .mode = nn::FactorMode::LowRank,
                                .matmul = matmul_},
      nn::FactoredWeights{a.narrow(0, 0, rank.rank), b.narrow(0, 0, rank.rank), bias_, {}});
}

Json LayerMaker::sketched_errors(const LayerRank& rank) const {
  Json errors = Json::object();
  for (const char* fit : {"random", "projection"}) {
    if (!contains(fits_, fit) || fit == sketched_fit()) continue;
    errors[fit] = error_of(sketched_linear(rank, fit)->effective_weight());
  }
  return errors;
}

LayerContestant LayerMaker::bmm(const LayerRank& rank) {
  HONE_REQUIRE(!last_sketched_.is_empty() && last_sketched_->options().rank == rank.rank &&
                   last_sketched_->options().terms == rank.terms,
               "bench layers", "The formula needs the sketched layer of its rank.");
  const nn::FactoredLinear& source = last_sketched_;
  const Index before = meter_.use().current;
  const BatchedLayer batched = BatchedLayer::of(*source);
  LayerContestant layer{.name = concat("bmm_", rank.terms, "x", rank.low_rank),
                        .ours = false,
                        .forward = [batched](const Tensor& x) { return batched.forward(x); },
                        .trained = {batched.s1, batched.s2, batched.bias},
                        .facts = size_facts("bmm", shape_, rank)};
  layer.weight_bytes = meter_.use().current - before;
  const nn::LayerFacts facts = source->facts();
  layer.facts["fit"] = sketched_fit();
  layer.facts["trainable_count"] = facts.trainable;
  layer.facts["stored_bytes"] = kBytes * layer.facts["stored_count"].get<Index>();
  layer.facts["rel_error"] = error_of(batched.effective_weight());
  layer.forward_flops = facts.forward_flops;
  layer.backward_flops = facts.backward_flops;
  predict_batched(shape_, rank, layer);
  return layer;
}

LayerContestant LayerMaker::factored(const std::string& mode, const LayerRank& rank) {
  LayerContestant layer = shape_.is_conv()              ? conv(mode, rank)
                          : mode.starts_with("frozen_") ? frozen(mode, rank)
                                                        : linear(mode, rank);
  layer.name = mode == "sketched" ? concat(mode, "_", rank.terms, "x", rank.low_rank)
                                  : concat(mode, "_", rank.rank);

  return layer;
}

LayerContestant LayerMaker::linear(const std::string& mode, const LayerRank& rank) {
  const bool is_sketched = mode == "sketched";
  if (!is_sketched) svd();  // before its memory would count as the layer's
  const Index before = meter_.use().current;
  nn::FactoredLinear module =
      is_sketched ? sketched_linear(rank, sketched_fit()) : low_rank_linear(rank);
  if (is_sketched) last_sketched_ = module;
  LayerContestant layer{.forward = [module](const Tensor& x) { return module.ptr()->forward(x); },
                        .trained = module->parameters(),
                        .facts = size_facts(mode, shape_, rank)};
  layer.weight_bytes = meter_.use().current - before;
  const nn::LayerFacts facts = module->facts();
  add_layer_facts(facts, layer.facts);
  layer.facts["fit"] = is_sketched ? sketched_fit() : svd_fit();
  layer.facts["rel_error"] = error_of(module->effective_weight());
  if (is_sketched) {
    if (const Json others = sketched_errors(rank); !others.empty()) {
      layer.facts["rel_errors_of_other_fits"] = others;
    }
  }
  layer.forward_flops = facts.forward_flops;
  layer.backward_flops = facts.backward_flops;
  predict_factored(shape_, rank.rank, module->options().width(), layer);
  return layer;
}

LayerContestant LayerMaker::frozen(const std::string& mode, const LayerRank& rank) {
  const bool from_svd = contains(fits_, "svd");
  nn::FactoredLinear source =
      from_svd ? low_rank_linear(rank) : sketched_linear(rank, sketched_fit());
  const nn::FrozenType type = mode == "frozen_f32"    ? nn::FrozenType::Float32
                              : mode == "frozen_bf16" ? nn::FrozenType::BFloat16
                                                      : nn::FrozenType::Int8;
  const Index before = meter_.use().current;
  nn::FrozenLinear module = nn::freeze(*source, type);
  LayerContestant layer{.forward = [module](const Tensor& x) { return module.ptr()->forward(x); },
                        .facts = size_facts(mode, shape_, rank)};
  run_forward(layer, layer_input(shape_, 1, 0));
  const nn::LayerFacts facts = module->facts();
  // The meter counts tensors only, and the packed copy is not one.
  layer.weight_bytes = meter_.use().current - before + facts.resident_bytes - facts.stored_bytes;
  add_layer_facts(facts, layer.facts);
  layer.facts["fit"] = from_svd ? svd_fit() : sketched_fit();
  const auto [a, b] = module->factors();
  layer.facts["rel_error"] = error_of(at::mm(b, a));
  layer.forward_flops = facts.forward_flops;
  layer.forward_peak = {line(0, shape_.inputs + rank.rank + shape_.outputs)};
  return layer;
}

LayerContestant LayerMaker::conv(const std::string& mode, const LayerRank& rank) {
  torch::nn::Conv2d dense(torch::nn::Conv2dOptions(shape_.inputs, shape_.outputs, shape_.kernel)
                              .stride(shape_.stride)
                              .padding(shape_.padding));
  dense->weight.set_data(weight_);
  dense->bias.set_data(bias_);
  const bool is_sketched = mode == "sketched";
  const auto fitted = [&](const std::string& fit) {
    return nn::from_conv(*dense,
                         {.mode = is_sketched ? nn::FactorMode::Sketched : nn::FactorMode::LowRank,
                          .fit = !is_sketched      ? nn::Fit::Svd
                                 : fit == "random" ? nn::Fit::Random
                                                   : nn::Fit::Projection,
                          .rank = rank.rank,
                          .terms = rank.terms,
                          .seed = seed_});
  };
  const Index before = meter_.use().current;
  nn::SketchedConv2d module = fitted(sketched_fit());
  LayerContestant layer{.forward = [module](const Tensor& x) { return module.ptr()->forward(x); },
                        .trained = module->parameters(),
                        .facts = size_facts(mode, shape_, rank)};
  layer.weight_bytes = meter_.use().current - before;
  const nn::LayerFacts facts = module->facts();
  add_layer_facts(facts, layer.facts);
  layer.facts["fit"] = is_sketched ? sketched_fit() : "svd";
  layer.facts["rel_error"] = error_of(module->effective_weight());
  if (is_sketched && contains(fits_, "random") && sketched_fit() != "random") {
    layer.facts["rel_errors_of_other_fits"] = {
        {"random", error_of(fitted("random")->effective_weight())}};
  }
  layer.forward_flops = facts.forward_flops * shape_.output_pixels();
  layer.backward_flops = facts.backward_flops * shape_.output_pixels();
  predict_conv(shape_, rank.rank, !is_sketched, layer);
  return layer;
}

}  // namespace hone::bench
