// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/memory_parts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

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
};

TEST(MemoryParts, predicts_what_a_step_takes_from_its_shapes) {
  for (const Case& c :
       {Case{"plain", 160, 432, 6, 5, 5, 512, 8, true, 0, "adamw"},
        Case{"recomputed", 160, 432, 6, 5, 5, 512, 8, true, 1, "adatamw"},
        Case{"every second", 160, 432, 6, 5, 5, 512, 8, true, 2, "tam"},
        Case{"grouped, untied", 128, 512, 3, 8, 2, 1024, 4, false, 0, "sgd"},
        Case{"grouped, recomputed", 128, 512, 5, 8, 2, 300, 16, false, 1, "sgd"},
        Case{"large vocabulary", 64, 128, 2, 4, 4, 8192, 4, true, 0, "adamw"},
        Case{"lion in bf16", 160, 432, 6, 5, 5, 512, 8, true, 0, "lion", "bf16"},
        Case{"codes", 160, 432, 6, 5, 5, 512, 8, false, 0, "adamw", "8bit"},
        Case{"by row", 256, 512, 2, 4, 4, 512, 8, true, 0, "adatam", "8bit", "vectorized"}}) {
    task::LmConfig config;
    config.model.hidden_size = c.hidden, config.model.intermediate_size = c.inner;
    config.model.layers = c.layers, config.model.heads = c.heads;
    config.model.kv_heads = c.kv_heads, config.model.tied_embeddings = c.tied;
    config.model.context = 64;
    config.trainer.recompute_every = c.every;
    config.optim.name = c.optimizer, config.optim.state_dtype = c.state;
    config.optim.correlation_method = c.method;
    std::vector<text::TokenId> tokens;
    for (Index i = 0; i < 200; ++i) tokens.push_back(static_cast<text::TokenId>(i * i % c.vocab));
    nn::Llama model(task::make_architecture(config, c.vocab), 3);
    model->set_recompute_every(c.every);
    task::LmTask task(model, task::TokenWindows(tokens, 64, 1),
                      {text::TokenStream{tokens, {200}},
                       std::vector<Index>(static_cast<std::size_t>(c.vocab), 1)},
                      c.batch, 1, 10);
    const auto optimizer = make_optimizer(config, *model);
    const torch::Tensor before = task.weights()[1].value.detach().clone();
    const MemoryParts got =
        measure_memory(task, *optimizer, replicate(task.largest_sample(), c.batch));
    const MemoryParts want = task::predict_memory(config, c.vocab, c.batch, 64);
    EXPECT_EQ(got.weights, want.weights) << c.name;
    EXPECT_EQ(got.gradients, want.gradients) << c.name;
    EXPECT_EQ(got.state, want.state) << c.name;
    const auto off = [](Index measured, Index predicted) {
      return std::abs(static_cast<double>(measured) / static_cast<double>(predicted) - 1);
    };
    EXPECT_LE(off(got.activations, want.activations), 0.01)
        << c.name << ' ' << got.activations << ' ' << want.activations;
    EXPECT_LE(off(got.workspace, want.workspace), 0.4)
        << c.name << ' ' << got.workspace << ' ' << want.workspace;
    EXPECT_LE(off(got.total(), want.total()), 0.03)
        << c.name << ' ' << got.total() << ' ' << want.total();
    EXPECT_TRUE(task.weights()[1].value.equal(before));
    EXPECT_TRUE(optimizer->export_state().empty());
  }
}

}  // namespace
}  // namespace hone::trainer
