// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/capture.h"

#include <algorithm>
#include <utility>

#include "hone/core/buffer.h"
#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/infer/model/model_runner.h"

namespace hone::infer {
namespace {

RunnerOptions runner_options(const std::vector<std::vector<TokenId>>& texts,
                             Activations activations) {
  Index longest = 1;
  for (const auto& text : texts) longest = std::max(longest, std::ssize(text));
  return {.act = activations == Activations::Int8 ? kernels::Act::Int8 : kernels::Act::Float32,
          .max_rows = longest};
}

ModelRunner make_runner(const model_io::ModelFile& model, const RunnerOptions& options,
                        Executor& executor) {
  WeightPacker packer(model, WeightFormat::File, executor);
  return ModelRunner(model, options, executor, pack_outer_weights(model, packer));
}

// Memory for the keys and values of one text.
class TextBlocks {
 public:
  TextBlocks(const ModelRunner& runner, Index tokens) : blocks_(runner.kv_groups().size()) {
    for (std::size_t g = 0; g < runner.kv_groups().size(); ++g) {
      const Index bytes = runner.kv_layout(static_cast<Index>(g)).block_bytes();
      const Index count = ceil_div(tokens, kBlockTokens);
      memory_.emplace_back(count * bytes);
      for (Index i = 0; i < count; ++i) blocks_[g].push_back(memory_.back().data() + i * bytes);
    }
  }
  std::vector<kernels::BlockPointers> tables() const { return {blocks_.begin(), blocks_.end()}; }

 private:
  std::vector<Buffer> memory_;
  std::vector<std::vector<std::byte*>> blocks_;  // by group of layers
};

}  // namespace

struct LayerWalk::State {
  State(const model_io::ModelFile& file, std::vector<std::vector<TokenId>> all,
        Activations activations, Executor& one)
      : texts(std::move(all)),
        executor(one),
        options(runner_options(texts, activations)),
        runner(make_runner(file, options, one)),
        blocks(runner, options.max_rows) {
    for (const auto& text : texts) tokens += std::ssize(text);
    hidden = Buffer(tokens * runner.hidden_size() * static_cast<Index>(sizeof(float)));
    scratch = Buffer(options.max_rows * runner.hidden_size() * static_cast<Index>(sizeof(float)));
  }

  // Calls act(batch, residual stream) for every text.
  template <class Act>
  void for_texts(const Act& act) {
    float* rows = hidden.as<float>();
    for (const auto& text : texts) {
      const Index count = std::ssize(text);
      StepBatch batch{.tokens = text,
                      .sequences = {{.rows = count, .tables = blocks.tables(), .logits = 0}}};
      act(batch, rows);
      rows += count * runner.hidden_size();
    }
  }
  void load(Index layer, const model_io::ModelFile& weights) {
    WeightPacker packer(weights, WeightFormat::File, executor);
    runner.set_layer(layer, pack_layer(weights, layer, packer, executor));
  }

  std::vector<std::vector<TokenId>> texts;
  Executor& executor;
  RunnerOptions options;
  ModelRunner runner;
  TextBlocks blocks;
  Buffer hidden, scratch;
  Index tokens = 0;
};

LayerWalk::LayerWalk(const model_io::ModelFile& model, std::vector<std::vector<TokenId>> texts,
                     Activations activations, Executor& executor) {
  const Index context = model.architecture().context;
  HONE_REQUIRE(!texts.empty(), "capture", "There is no text.");
  for (const auto& text : texts) {
    HONE_CHECK(!text.empty() && std::ssize(text) <= context, "capture",
               concat("texts of 1 to ", context, " tokens"), text.size());
    check_ids(text, model.architecture().vocab_size, "capture");
  }
  state_ = std::make_unique<State>(model, std::move(texts), activations, executor);
  restart();
}

LayerWalk::~LayerWalk() = default;

Index LayerWalk::tokens() const { return state_->tokens; }

void LayerWalk::restart() {
  state_->for_texts(
      [&](const StepBatch& batch, float* rows) { state_->runner.read_embedding(batch, rows); });
}

void LayerWalk::observe(Index layer, const model_io::ModelFile& weights,
                        const InputListener& listener) {
  HONE_TRACE_ZONE("observe layer", {"layer", layer}, {"tokens", state_->tokens});
  state_->load(layer, weights);
  state_->for_texts([&](const StepBatch& batch, const float* rows) {
    float* copy = state_->scratch.as<float>();
    std::copy_n(rows, batch.rows() * state_->runner.hidden_size(), copy);
    state_->runner.run_layer(layer, batch, copy, listener);
  });
  state_->runner.set_layer(layer, {});
}

void LayerWalk::advance(Index layer, const model_io::ModelFile& weights) {
  HONE_TRACE_ZONE("advance layer", {"layer", layer}, {"tokens", state_->tokens});
  state_->load(layer, weights);
  state_->for_texts(
      [&](const StepBatch& batch, float* rows) { state_->runner.run_layer(layer, batch, rows); });
  state_->runner.set_layer(layer, {});
}

std::span<const float> LayerWalk::hidden() const {
  return {state_->hidden.as<float>(),
          static_cast<std::size_t>(state_->tokens * state_->runner.hidden_size())};
}

void LayerWalk::set_hidden(std::span<const float> hidden) {
  HONE_CHECK(hidden.size() == this->hidden().size(), "capture",
             concat(this->hidden().size(), " values"), hidden.size());
  std::ranges::copy(hidden, state_->hidden.as<float>());
}

std::span<float> LayerWalk::logits(Index first, Index count) {
  HONE_CHECK(first >= 0 && count > 0 && first + count <= state_->tokens, "capture",
             concat("rows below ", state_->tokens), first + count);
  return state_->runner.logits_of(state_->hidden.as<float>() + first * state_->runner.hidden_size(),
                                  count);
}

Index LayerWalk::logit_rows() const { return state_->runner.logit_rows(); }

}  // namespace hone::infer
