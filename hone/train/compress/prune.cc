// SPDX-License-Identifier: Apache-2.0
#include "hone/train/compress/prune.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>

#include "hone/compress/method/select.h"
#include "hone/core/check.h"
#include "hone/core/names.h"
#include "hone/train/compress/saliency.h"
#include "hone/train/surgery/layer_select.h"

namespace hone::nn {
namespace {

using torch::Tensor;

constexpr std::string_view kPrune = "prune";

bool has_prunable_weights(const torch::nn::Module& module) {
  return module.as<torch::nn::LinearImpl>() != nullptr ||
         module.as<torch::nn::Conv1dImpl>() != nullptr ||
         module.as<torch::nn::Conv2dImpl>() != nullptr ||
         module.as<torch::nn::Conv3dImpl>() != nullptr ||
         module.as<torch::nn::LSTMImpl>() != nullptr || module.as<torch::nn::GRUImpl>() != nullptr;
}

std::vector<NamedTensor> prunable_weights(torch::nn::Module& model,
                                          const std::vector<std::string>& except) {
  std::set<const torch::nn::Module*> kept;
  if (!except.empty()) {
    for (const Layer& layer : select_layers(model, {.pattern = except})) {
      kept.insert(layer.module.get());
    }
  }
  std::vector<NamedTensor> out;
  std::set<const void*> seen;
  const auto add = [&](const torch::nn::Module& module, const std::string& prefix) {
    if (!has_prunable_weights(module) || kept.contains(&module)) return;
    for (const auto& item : module.named_parameters(/*recurse=*/false)) {
      if (!item.key().starts_with("weight") || !item.value().defined()) continue;
      if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
      out.push_back({prefix + item.key(), item.value()});
    }
  };
  add(model, "");
  for (const Layer& layer : layers_of(model)) add(*layer.module, layer.path + ".");
  return out;
}

std::span<const float> values_in(const Tensor& scores) {
  return {scores.data_ptr<float>(), static_cast<std::size_t>(scores.numel())};
}

// f32 on the CPU.
Tensor to_scores(const Tensor& values) {
  return values.detach().to(at::kCPU, at::kFloat).contiguous();
}

std::vector<Tensor> magnitudes(const std::vector<NamedTensor>& weights) {
  std::vector<Tensor> out;
  for (const NamedTensor& each : weights) out.push_back(to_scores(each.value.detach().abs()));
  return out;
}

std::vector<Tensor> saliencies(const torch::nn::Module& model,
                               const std::vector<NamedTensor>& weights,
                               const PruneOptions& options) {
  std::vector<Tensor> sums =
      gradient_saliencies(kPrune, model, weights, options.loss, options.batches);
  // Their largest becomes 1, so that f32 holds small ones.
  double largest = 0;
  for (const Tensor& sum : sums) largest = std::max(largest, sum.max().item<double>());
  for (Tensor& sum : sums) sum = to_scores(largest > 0 ? sum / largest : sum);
  return sums;
}

void check_scores(const std::vector<NamedTensor>& weights, const std::vector<Tensor>& scores) {
  for (std::size_t i = 0; i < scores.size(); ++i) {
    HONE_REQUIRE(at::isfinite(scores[i]).all().item<bool>(), kPrune,
                 concat("The scores of ", quote_name(weights[i].name), " are not finite."));
  }
}

Index count_of(double sparsity, Index weights) {
  return std::llround(sparsity * static_cast<double>(weights));
}

// 1 for each weight that is kept.
std::vector<Tensor> masks_by_layer(const std::vector<Tensor>& scores, double sparsity) {
  std::vector<Tensor> out;
  for (const Tensor& score : scores) {
    const Tensor mask = at::empty(score.sizes(), at::kByte);
    compress::mark_largest(values_in(score), count_of(sparsity, score.numel()),
                           {mask.data_ptr<std::uint8_t>(), static_cast<std::size_t>(mask.numel())});
    out.push_back(mask);
  }
  return out;
}

std::vector<Tensor> masks_of_all(const std::vector<Tensor>& scores, double sparsity) {
  Index all = 0;
  for (const Tensor& score : scores) all += score.numel();
  const Index count = count_of(sparsity, all);
  compress::Threshold threshold = compress::find_threshold(count, [&](compress::ValueSink sink) {
    for (const Tensor& score : scores) sink(values_in(score));
  });
  std::vector<Tensor> out;
  for (const Tensor& score : scores) {
    const Tensor mask = at::ones(score.sizes(), at::kByte);
    auto* const kept = mask.data_ptr<std::uint8_t>();
    const std::span<const float> values = values_in(score);
    for (std::size_t i = 0; i < values.size() && count > 0; ++i) {
      const bool ties = values[i] == threshold.value && threshold.ties > 0;
      if (ties) --threshold.ties;
      if (values[i] < threshold.value || ties) kept[i] = 0;
    }
    out.push_back(mask);
  }
  return out;
}

// A name that a buffer may have.
std::string buffer_name(std::string name) {
  std::ranges::replace(name, '.', '/');
  return name;
}

}  // namespace

void WeightMasksImpl::apply() {
  const at::NoGradGuard no_grad;
  for (Entry& entry : entries_) {
    entry.weight.mul_(entry.mask.to(entry.weight.device(), entry.weight.scalar_type()));
  }
}

Index WeightMasksImpl::zeros() const {
  Index count = 0;
  for (const Entry& entry : entries_) count += entry.mask.eq(0).sum().item<std::int64_t>();
  return count;
}

void WeightMasksImpl::add(std::string name, const Tensor& weight, const Tensor& mask) {
  const Tensor buffer = register_buffer(buffer_name(name), mask);
  entries_.push_back({std::move(name), weight, buffer});
}

PruneResult prune(torch::nn::Module& model, const PruneOptions& options) {
  HONE_CHECK(options.sparsity >= 0 && options.sparsity <= 1, kPrune, "a sparsity of 0 to 1",
             options.sparsity);
  const std::vector<NamedTensor> weights = prunable_weights(model, options.except);
  HONE_REQUIRE(!weights.empty(), kPrune, "The model has no weights that can be pruned.");
  const std::vector<Tensor> scores = options.score == PruneScore::Gradient
                                         ? saliencies(model, weights, options)
                                         : magnitudes(weights);
  check_scores(weights, scores);
  const std::vector<Tensor> masks = options.global ? masks_of_all(scores, options.sparsity)
                                                   : masks_by_layer(scores, options.sparsity);
  PruneResult result;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    result.masks->add(weights[i].name, weights[i].value, masks[i]);
  }
  result.masks->apply();
  for (const NamedTensor& each : weights) {
    const Index all = each.value.numel();
    const Index zeros = all - at::count_nonzero(each.value).item<std::int64_t>();
    result.tensors.push_back({each.name, all, zeros});
    result.weights += all;
    result.zeros += zeros;
  }
  return result;
}

WeightMasks masks_of_zeros(torch::nn::Module& model, const std::vector<std::string>& except) {
  WeightMasks masks;
  for (const NamedTensor& each : prunable_weights(model, except)) {
    masks->add(each.name, each.value, each.value.detach().ne(0).to(at::kCPU, at::kByte));
  }
  return masks;
}

double PruneSchedule::sparsity_at(Index step) const {
  if (step >= end) return last;
  const double left =
      1 - static_cast<double>(std::max<Index>(0, step - begin)) / static_cast<double>(end - begin);
  return last + (first - last) * left * left * left;
}

bool PruneSchedule::is_due(Index step) const {
  return step == end ||
         (step >= begin && step < end && (step - begin) % std::max<Index>(1, every) == 0);
}

Json to_json(const PruneResult& result) {
  Json tensors = Json::array();
  for (const PrunedTensor& each : result.tensors) {
    tensors.push_back({{"name", each.name},
                       {"weights", each.weights},
                       {"zeros", each.zeros},
                       {"sparsity", each.sparsity()}});
  }
  return {{"tensors", std::move(tensors)},
          {"original_params", result.weights},
          {"remaining_params", result.weights - result.zeros},
          {"actual_sparsity", result.sparsity()}};
}

}  // namespace hone::nn
