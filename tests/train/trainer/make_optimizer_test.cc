// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/make_optimizer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "hone/core/check.h"
#include "hone/train/task/lm/lm_setup.h"
#include "tests/support/refusal.h"

namespace hone::trainer {
namespace {

using testing::HasSubstr;

// Each token is the one before plus 3, modulo 20.
torch::Tensor lesson() {
  const torch::Tensor ids = at::arange(64, at::kLong).reshape({4, 16});
  return (ids * 3 + 1).remainder(20);
}

task::LmConfig small_config() {
  task::LmConfig config;
  for (const char* set : {"model.hidden_size=32", "model.heads=2", "model.layers=1",
                          "model.intermediate_size=64", "model.context=16"}) {
    set_config(config, set);
  }
  return config;
}

struct Lessons {
  std::vector<double> losses;  // before each step and after the last
  torch::Tensor weights;       // all, one after the other
  std::map<std::string, std::set<at::ScalarType>> state_types;
};

Lessons run(const task::LmConfig& config, Index vocab = 20, int steps = 20) {
  nn::Llama model(task::make_architecture(config, vocab), 1);
  const auto optimizer = make_optimizer(config, *model);
  const torch::Tensor ids = lesson();
  const torch::Tensor from = ids.narrow(1, 0, 15).contiguous(),
                      to = ids.narrow(1, 1, 15).contiguous();
  Lessons out;
  for (int step = 0; step <= steps; ++step) {
    const torch::Tensor loss = model->loss_sum(from, to) / 60;
    out.losses.push_back(loss.item<double>());
    if (step == steps) break;
    optimizer->zero_grad();
    loss.backward();
    optimizer->step_with({});
  }
  std::vector<torch::Tensor> flat;
  std::vector<std::string> names;
  for (const auto& group : optimizer->param_groups()) {
    for (const auto& parameter : group.params()) {
      for (const auto& item : model->named_parameters()) {
        if (item.value().is_same(parameter)) names.push_back(item.key());
      }
    }
  }
  for (const auto& item : model->named_parameters())
    flat.push_back(item.value().detach().flatten());
  out.weights = at::cat(flat);
  for (const optim::NamedState& entry : optimizer->export_state()) {
    if (entry.value.numel() <= 1 || entry.name.ends_with("_scale")) continue;
    out.state_types[names[static_cast<std::size_t>(entry.parameter)]].insert(
        entry.value.scalar_type());
  }
  return out;
}

TEST(MakeOptimizer, every_rule_learns_in_twenty_steps_at_its_own_rate) {
  for (const optim::RuleDefaults& rule : task::lm_rules()) {
    task::LmConfig config = small_config();
    config.optim.name = rule.name;
    const Lessons got = run(config);
    EXPECT_LT(got.losses.back(), 0.9 * got.losses.front()) << rule.name;
    task::LmConfig faster = config;
    faster.lr.peak = 1.5 * rule.peak;
    EXPECT_FALSE(run(faster).weights.equal(got.weights)) << rule.name;
  }
}

struct Effect {
  const char* rules;    // that read the key, between spaces
  const char* setting;  // other than the default
};

TEST(MakeOptimizer, every_key_moves_the_rules_that_read_it_and_is_refused_for_the_others) {
  for (const optim::RuleDefaults& rule : task::lm_rules()) {
    task::LmConfig config = small_config();
    config.optim.name = rule.name;
    const torch::Tensor usual = run(config).weights;
    for (const Effect& effect : {
             Effect{" sgd adam adamw adagrad lion tam adatam adatamw ", "optim.weight_decay=0.5"},
             Effect{" adam adamw lion ", "optim.beta1=0.5"},
             Effect{" adam adamw adatam adatamw lion ", "optim.beta2=0.5"},
             Effect{" adam adamw adagrad tam adatam adatamw ", "optim.eps=0.1"},
             Effect{" sgd tam adatam adatamw ", "optim.momentum=0.5"},
             Effect{" sgd ", "optim.nesterov=true"},
             Effect{" tam adatam adatamw ", "optim.decay_rate=0.1"},
             Effect{" tam adatam adatamw ", "optim.correlation_method=vectorized"},
             Effect{" tam adatam adatamw ", "optim.correlation_method=auto"},
             Effect{" tam adatam adatamw ", "optim.fixed_damping=0.75"},
             Effect{" sgd adam adamw adagrad lion tam adatam adatamw ", "optim.state_dtype=bf16"},
         }) {
      const bool reads =
          std::string(effect.rules).find(concat(" ", rule.name, " ")) != std::string::npos;
      task::LmConfig changed = config;
      set_config(changed, effect.setting);
      EXPECT_EQ(!run(changed).weights.equal(usual), reads) << rule.name << ' ' << effect.setting;
      const std::string said = test::refusal([&] { check_config(changed); });
      const std::string key(effect.setting, std::string_view(effect.setting).find('='));
      EXPECT_EQ(said, reads ? ""
                            : concat(key, " has no effect with optim.name = ", rule.name,
                                     ": remove it from the configuration"));
    }
  }
}

// The two guards of a tensor's cosine differ only for gradients near 1e-8.
TEST(MakeOptimizer, cosine_similarity_reaches_the_optimizer) {
  task::LmConfig config = small_config();
  set_config(config, "optim.name=tam");
  set_config(config, "optim.correlation_method=cosine_similarity");
  nn::Llama model(task::make_architecture(config, 20), 1);
  const auto optimizer = make_optimizer(config, *model);
  const torch::Tensor ids = lesson();
  (model->loss_sum(ids, ids)).backward();
  for (const optim::TensorPlanEntry& entry : optimizer->plan()) {
    EXPECT_THAT(entry.method, HasSubstr("cosine_similarity")) << entry.method;
  }
}

TEST(MakeOptimizer, takes_a_decay_that_is_the_rules_own_default_at_its_word) {
  // 0.01 is what a fresh AdamWOptions holds, and so LibTorch's sign for "not given".
  task::LmConfig config = small_config();
  config.optim.weight_decay = 0;
  const torch::Tensor without = run(config).weights;
  config.optim.weight_decay = 0.01;
  EXPECT_FALSE(run(config).weights.equal(without));
  config.optim.weight_decay = 0.1;
  const torch::Tensor given = run(config).weights;
  config.optim.weight_decay.reset();
  EXPECT_TRUE(run(config).weights.equal(given)) << "auto is 0.1 for adamw";
}

TEST(MakeOptimizer, gives_decay_to_matrices_only) {
  for (const optim::RuleDefaults& rule : task::lm_rules()) {
    task::LmConfig config = small_config();
    config.optim.name = rule.name;
    config.optim.weight_decay = 0.1;
    nn::Llama model(task::make_architecture(config, 20), 1);
    const auto optimizer = make_optimizer(config, *model);
    ASSERT_EQ(optimizer->param_groups().size(), 2u);
    for (auto& group : optimizer->param_groups()) {
      EXPECT_EQ(group.options().get_lr(), rule.peak);
      for (const auto& parameter : group.params()) {
        EXPECT_EQ(parameter.dim() >= 2, &group == &optimizer->param_groups()[0]);
      }
    }
    // With zero gradients only weight decay moves anything.
    const torch::Tensor ids = at::zeros({1, 8}, at::kLong);
    const torch::Tensor norm = model->named_parameters()["norm"];
    const torch::Tensor matrix = model->named_parameters()["layer0.down"];
    const torch::Tensor before_norm = norm.detach().clone(), before = matrix.detach().clone();
    (model->loss_sum(ids, ids) * 0.0).backward();
    optimizer->step_with({});
    EXPECT_TRUE(norm.equal(before_norm)) << rule.name;
    EXPECT_FALSE(matrix.equal(before)) << rule.name;
  }
}

TEST(MakeOptimizer, keeps_state_in_the_type_asked_for_and_embeddings_in_fp32_beside_codes) {
  task::LmConfig config = small_config();
  config.model.intermediate_size = 128;  // gate_up and down reach the size that is coded
  for (const char* name : {"adamw", "sgd", "lion", "tam", "adagrad"}) {
    config.optim.name = name;
    config.optim.state_dtype = "8bit";
    const Lessons coded = run(config, 200);
    EXPECT_LT(coded.losses.back(), coded.losses.front()) << name;
    EXPECT_EQ(coded.state_types.at("embed_tokens"), std::set{at::kFloat}) << name;
    EXPECT_EQ(coded.state_types.at("norm"), std::set{at::kFloat}) << name;
    EXPECT_FALSE(coded.state_types.at("layer0.gate_up").contains(at::kFloat)) << name;
    config.optim.state_dtype = "bf16";
    EXPECT_EQ(run(config, 200).state_types.at("embed_tokens"), std::set{at::kBFloat16}) << name;
  }
}

TEST(OptimConfig, refuses_wrong_values_in_one_sentence) {
  for (const auto& [setting, wanted] : std::initializer_list<std::pair<const char*, const char*>>{
           {"optim.name=adamax", "sgd, adam, adamw, adagrad, lion, tam, adatam or adatamw"},
           {"optim.weight_decay=-1", "0 to 10, got -1"},
           {"optim.beta1=1", "0 to 0.999999"},
           {"optim.beta2=1", "0 to 0.999999"},
           {"optim.eps=0", "1e-30 to 1"},
           {"optim.momentum=1", "0 to 0.999999"},
           {"optim.decay_rate=2", "0 to 0.999999"},
           {"optim.correlation_method=exact", "manual, auto, cosine_similarity or vectorized"},
           {"optim.fixed_damping=2", "0 to 1"},
           {"optim.state_dtype=fp16", "fp32, bf16 or 8bit, got fp16"}}) {
    task::LmConfig config;
    set_config(config, setting);
    std::string message;
    try {
      check_config(config);
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::InvalidArgument);
      message = error.what();
    }
    EXPECT_THAT(message, HasSubstr(wanted)) << setting;
    EXPECT_THAT(message, HasSubstr(std::string(setting, std::string(setting).find('='))));
  }
  task::LmConfig config;
  for (const char* set : {"optim.name=sgd", "optim.nesterov=true", "optim.momentum=0"}) {
    set_config(config, set);
  }
  EXPECT_THROW(check_config(config), Error);
}

}  // namespace
}  // namespace hone::trainer
