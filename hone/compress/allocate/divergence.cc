// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/allocate/divergence.h"

#include <algorithm>
#include <utility>

#include "hone/kernels/norm/token_scores.h"

namespace hone::compress {
namespace {

constexpr Index kTextTokens = 128;
constexpr Index kLogitBytes = Index{512} << 20;

template <class Visit>
void for_logits(infer::LayerWalk& walk, const Visit& visit) {
  for (Index first = 0; first < walk.tokens(); first += walk.logit_rows()) {
    const Index count = std::min(walk.logit_rows(), walk.tokens() - first);
    visit(first, count, walk.logits(first, count));
  }
}

}  // namespace

Texts sample_texts(const Texts& all, const Model& model, Index tokens) {
  const Index most = kLogitBytes / (4 * model.architecture().vocab_size);
  const Index count = std::min(tokens, std::max(most, kTextTokens));
  const Index wanted = std::clamp<Index>(count / kTextTokens, 1, std::ssize(all));
  Texts texts;
  for (Index i = 0; i < wanted; ++i) {
    const auto& from = all[static_cast<std::size_t>(i * std::ssize(all) / wanted)];
    const auto size = std::min(std::ssize(from), kTextTokens);
    texts.emplace_back(from.begin(), from.begin() + size);
  }
  return texts;
}

DivergenceMeter::DivergenceMeter(const Model& original, Texts texts, Executor& executor)
    : original_(original),
      texts_(std::move(texts)),
      executor_(executor),
      walk_(original, texts_, infer::Activations::Int8, executor) {}

void DivergenceMeter::keep_logits() {
  for_logits(walk_, [&](Index, Index, std::span<const float> logits) {
    reference_.insert(reference_.end(), logits.begin(), logits.end());
  });
}

double DivergenceMeter::of_layer(Index layer, const Model& changed) {
  walk_.set_hidden(streams_[static_cast<std::size_t>(layer)]);
  walk_.advance(layer, changed);
  for (Index next = layer + 1; next < layers(); ++next) walk_.advance(next, original_);
  return compare(walk_);
}

double DivergenceMeter::of_model(const Model& changed) {
  infer::LayerWalk walk(changed, texts_, infer::Activations::Int8, executor_);
  for (Index layer = 0; layer < layers(); ++layer) walk.advance(layer, original_);
  return compare(walk);
}

double DivergenceMeter::compare(infer::LayerWalk& walk) const {
  double sum = 0;
  const std::vector<std::int32_t> targets(static_cast<std::size_t>(walk.tokens()));
  std::vector<kernels::TokenPair> pairs(targets.size());
  for_logits(walk, [&](Index first, Index count, std::span<const float> logits) {
    kernels::compare_tokens({.rows = count,
                             .vocab = vocab(),
                             .logits = logits.data(),
                             .baseline = reference_.data() + first * vocab(),
                             .targets = targets.data(),
                             .pairs = pairs.data()},
                            executor_);
    for (Index i = 0; i < count; ++i) sum += pairs[static_cast<std::size_t>(i)].kl;
  });
  return sum / static_cast<double>(walk.tokens());
}

}  // namespace hone::compress
