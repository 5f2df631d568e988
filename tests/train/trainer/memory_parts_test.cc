// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/memory_parts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "hone/core/check.h"
#include "hone/train/task/lm/factored_model.h"
#include "hone/train/task/lm/lm_setup.h"
#include "hone/train/task/lm/lm_task.h"
#include "hone/train/task/lm/predict_memory.h"
#include "hone/train/trainer/probe_step.h"

namespace hone::trainer {
namespace {

struct Case {
  const char* name;
  Index hidden, inner, layers, heads, kv_heads, vocab, batch;
  bool tied;
  Index every;
  const char *optimizer, *state = "fp32", *method = "manual";
  Index rank = 0;  // of factored layers: gate_up_proj of all, down_proj of every second layer
  double ema_decay = 0;

  ProbeOptions probe() const { return {.ema_decay = ema_decay}; }
};

constexpr Case kCases[] = {
    {"plain", 160, 432, 6, 5, 5, 512, 8, true, 0, "adamw"},
    {"recomputed", 160, 432, 6, 5, 5, 512, 8, true, 1, "adatamw"},
    {"every second", 160, 432, 6, 5, 5, 512, 8, true, 2, "tam"},
    {"grouped, untied", 128, 512, 3, 8, 2, 1024, 4, false, 0, "sgd"},
    {"grouped, recomputed", 128, 512, 5, 8, 2, 300, 16, false, 1, "sgd"},
    {"large vocabulary", 64, 128, 2, 4, 4, 8192, 4, true, 0, "adamw"},
    {"vocabulary in chunks", 64, 128, 2, 4, 4, 70000, 8, true, 0, "sgd"},
    {"untied vocabulary in chunks", 64, 128, 2, 4, 4, 70000, 8, false, 1, "sgd"},
    {"lion in bf16", 160, 432, 6, 5, 5, 512, 8, true, 0, "lion", "bf16"},
    {"codes", 160, 432, 6, 5, 5, 512, 8, false, 0, "adamw", "8bit"},
    {"by row", 256, 512, 2, 4, 4, 512, 8, true, 0, "adatam", "8bit", "vectorized"},
    {"factored", 160, 432, 6, 5, 5, 512, 8, true, 0, "adamw", "fp32", "manual", 48},
    {"factored, rank padded", 160, 432, 6, 5, 5, 512, 8, true, 0, "sgd", "fp32", "manual", 40},
    {"factored, recomputed", 128, 512, 5, 8, 2, 300, 16, false, 1, "adamw", "bf16", "manual", 32},
    {"muon", 160, 432, 6, 5, 5, 512, 8, true, 0, "muon"},
    {"muon, update above the activations", 512, 1408, 1, 8, 8, 64, 1, false, 0, "muon"},
    {"rmsprop", 160, 432, 6, 5, 5, 512, 8, true, 0, "rmsprop"},
    {"averaged", 160, 432, 6, 5, 5, 512, 8, true, 0, "adamw", "fp32", "manual", 0, 0.99}};

model_io::Architecture architecture_of(const Case& c, const task::LmConfig& config) {
  model_io::Architecture out = task::make_architecture(config, c.vocab);
  using enum model_io::FactoredLayer::Mode;
  for (Index layer = 0; c.rank > 0 && layer < c.layers; ++layer) {
    const std::string prefix = concat("model.layers.", layer, ".mlp.");
    out.factored.push_back({.name = prefix + "gate_up_proj", .mode = LowRank, .rank = c.rank});
    if (layer % 2 == 0) {
      out.factored.push_back({.name = prefix + "down_proj", .mode = Sketched, .rank = c.rank});
    }
  }
  return out;
}

void check_parts(const Case& c, const std::string& library) {
  const std::string label = concat(c.name, " by ", library);
  task::LmConfig config;
  config.model.hidden_size = c.hidden, config.model.intermediate_size = c.inner;
  config.model.layers = c.layers, config.model.heads = c.heads;
  config.model.kv_heads = c.kv_heads, config.model.tied_embeddings = c.tied;
  config.model.context = 64;
  config.trainer.recompute_every = c.every, config.trainer.matmul = library;
  config.optim.name = c.optimizer, config.optim.state_dtype = c.state;
  config.optim.correlation_method = c.method;
  config.trainer.ema_decay = c.ema_decay;
  std::vector<text::TokenId> tokens;
  for (Index i = 0; i < 200; ++i) tokens.push_back(static_cast<text::TokenId>(i * i % c.vocab));
  const model_io::Architecture architecture = architecture_of(c, config);
  nn::Llama model = task::make_llama(architecture, 3, nn::parse_matmul_backend(library));
  model->set_recompute_every(c.every);
  task::LmTask task(
      model, task::TokenWindows(tokens, 64, 1),
      {text::TokenStream{tokens, {200}}, std::vector<Index>(static_cast<std::size_t>(c.vocab), 1)},
      c.batch, 1, 10);
  const auto optimizer = make_optimizer(config, *model);
  const torch::Tensor before = task.weights()[1].value.detach().clone();
  const MemoryParts got =
      measure_memory(task, *optimizer, replicate(task.largest_sample(), c.batch), c.probe());
  const MemoryParts want = task::predict_memory(config, architecture, c.batch, 64);
  EXPECT_EQ(got.weights, want.weights) << label;
  EXPECT_EQ(got.gradients, want.gradients) << label;
  EXPECT_EQ(got.state, want.state) << label;
  EXPECT_EQ(got.averages, want.averages) << label;
  const auto off = [](Index measured, Index predicted) {
    return std::abs(static_cast<double>(measured) / static_cast<double>(predicted) - 1);
  };
  EXPECT_LE(off(got.activations, want.activations), 0.01)
      << label << ' ' << got.activations << ' ' << want.activations;
  EXPECT_LE(off(got.workspace, want.workspace), 0.4)
      << label << ' ' << got.workspace << ' ' << want.workspace;
  EXPECT_LE(off(got.total(), want.total()), 0.03)
      << label << ' ' << got.total() << ' ' << want.total();
  EXPECT_TRUE(task.weights()[1].value.equal(before));
  EXPECT_TRUE(optimizer->export_state().empty());
}

TEST(MemoryParts, predicts_what_a_step_takes_from_its_shapes) {
  for (const Case& c : kCases) check_parts(c, "mkl");
}

TEST(MemoryParts, predicts_what_a_step_takes_by_another_library) {
  if (!at::globalContext().hasMKLDNN()) GTEST_SKIP() << "this LibTorch has no oneDNN";
  for (const Case& c : kCases) check_parts(c, "onednn");
}

}  // namespace
}  // namespace hone::trainer
