// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/make_optimizer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "hone/core/check.h"
#include "hone/train/surgery/layer_select.h"
#include "hone/train/task/lm/lm_setup.h"
#include "tests/support/error_of.h"

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

torch::Tensor down_of(nn::LlamaImpl& model) {
  return nn::find_layer(model, "layers.0.mlp.down_proj").module->parameters().front();
}

struct Lessons {
  std::vector<double> losses;  // before each step and after the last
  torch::Tensor weights;       // all, one after the other
  std::map<std::string, std::set<at::ScalarType>> state_types;
};

Lessons run(task::LmConfig config, Index vocab = 20, int steps = 20) {
  nn::Llama model(task::make_architecture(config, vocab), 1);
  config.optim = apply_preset(config.optim, config.given, *model);
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
      for (const auto& [name, value] : nn::parameters_by_path(*model)) {
        if (value.is_same(parameter)) names.push_back(name);
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
    EXPECT_LT(std::ranges::max(got.losses), 1.5 * got.losses.front()) << rule.name;
    task::LmConfig faster = config;
    faster.lr.peak = 1.5 * rule.peak;
    EXPECT_FALSE(run(faster).weights.equal(got.weights)) << rule.name;
  }
}

constexpr const char* kAll = " sgd adam adamw adagrad rmsprop lion muon tam adatam adatamw ";

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
             Effect{kAll, "optim.weight_decay=0.5"},
             Effect{" adam adamw lion ", "optim.beta1=0.5"},
             Effect{" adam adamw rmsprop adatam adatamw lion ", "optim.beta2=0.5"},
             Effect{" adam adamw adagrad rmsprop tam adatam adatamw ", "optim.eps=0.1"},
             Effect{" sgd rmsprop muon tam adatam adatamw ", "optim.momentum=0.5"},
             Effect{" sgd ", "optim.nesterov=true"},
             Effect{" tam adatam adatamw ", "optim.decay_rate=0.1"},
             Effect{" tam adatam adatamw ", "optim.correlation_method=vectorized"},
             Effect{" tam adatam adatamw ", "optim.correlation_method=auto"},
             Effect{" tam adatam adatamw ", "optim.fixed_damping=0.75"},
             Effect{kAll, "optim.state_dtype=bf16"},
         }) {
      const bool reads =
          std::string(effect.rules).find(concat(" ", rule.name, " ")) != std::string::npos;
      task::LmConfig changed = config;
      set_config(changed, effect.setting);
      EXPECT_EQ(!run(changed).weights.equal(usual), reads) << rule.name << ' ' << effect.setting;
      const std::string said = test::refusal([&] { check_config(changed); });
      const std::string key(effect.setting, std::string_view(effect.setting).find('='));
      EXPECT_EQ(said, reads ? ""
                            : concat("[", key, "] This key has no effect with optim.name = ",
                                     rule.name, ": remove it from the configuration."));
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

// TAM's method for every tensor, in the order of the groups.
std::vector<std::string> methods_of(const task::LmConfig& config) {
  nn::Llama model(task::make_architecture(config, 20), 1);
  const auto optimizer = make_optimizer(config, *model);
  const torch::Tensor ids = lesson();
  model->loss_sum(ids, ids).backward();
  std::vector<std::string> methods;
  for (const optim::TensorPlanEntry& entry : optimizer->plan()) methods.push_back(entry.method);
  return methods;
}

TEST(MakeOptimizer, large_tensors_begin_above_the_threshold) {
  task::LmConfig config = small_config();
  for (const char* set : {"optim.name=tam", "optim.correlation_method=auto"}) {
    set_config(config, set);
  }
  const auto count = [&](Index threshold, const char* method) {
    config.optim.large_tensor_threshold = threshold;
    const auto methods = methods_of(config);
    return std::ranges::count_if(
        methods, [&](const std::string& m) { return m.find(method) != std::string::npos; });
  };
  EXPECT_EQ(count(1'000'000, "manual"), std::ssize(methods_of(config)));
  EXPECT_EQ(count(0, "manual"), 0);
  EXPECT_GT(count(640, "manual"), 0) << "the embedding of 20 x 32 and smaller ones";
  EXPECT_GT(count(640, "vectorized"), 0) << "the others";
}

TEST(MakeOptimizer, a_checked_step_leaves_the_weights_where_a_new_one_would_not_be_finite) {
  for (const char* name : {"tam", "adatam", "adatamw"}) {
    for (const bool checked : {false, true}) {
      task::LmConfig config = small_config();
      config.optim.name = name;
      config.optim.checked = checked;
      config.lr.peak = 1e38;
      config.optim.weight_decay = 10;
      nn::Llama model(task::make_architecture(config, 20), 1);
      const auto optimizer = make_optimizer(config, *model);
      const torch::Tensor ids = lesson(), weight = down_of(*model);
      const torch::Tensor before = weight.detach().clone();
      (model->loss_sum(ids, ids) * 1e3).backward();
      EXPECT_EQ(optimizer->step_with({}).stepped, !checked) << name;
      EXPECT_EQ(weight.equal(before), checked) << name;
    }
  }
}

torch::nn::Module module_of(double parameters) {
  torch::nn::Module module;
  const auto size = static_cast<std::int64_t>(parameters);
  module.register_parameter("w", at::zeros({1}).expand({size}), /*requires_grad=*/false);
  return module;
}

struct Preset {
  const char* name;
  double parameters;
  const char* method;
  Index threshold;
  bool checked;
  const char* state;
};

TEST(ApplyPreset, stands_for_the_values_of_the_reference_guide) {
  for (const Preset& want : {Preset{"high_performance", 10, "auto", 1000, false, "fp32"},
                             Preset{"stable", 10, "manual", 1000, true, "fp32"},
                             Preset{"large_model", 10, "vectorized", 500, false, "fp32"},
                             Preset{"memory_limited", 10, "manual", 1000, true, "bf16"},
                             Preset{"for_model_size", 1e8 - 1, "manual", 1000, false, "fp32"},
                             Preset{"for_model_size", 1e8, "auto", 500, false, "fp32"},
                             Preset{"for_model_size", 1e9 + 1, "vectorized", 200, false, "fp32"}}) {
    optim::OptimConfig optim;
    optim.name = "tam", optim.preset = want.name;
    const optim::OptimConfig got = apply_preset(optim, {}, module_of(want.parameters));
    EXPECT_EQ(got.correlation_method, want.method) << want.name;
    EXPECT_EQ(got.large_tensor_threshold, want.threshold) << want.name;
    EXPECT_EQ(got.checked, want.checked) << want.name;
    EXPECT_EQ(got.state_dtype, want.state) << want.name;
    EXPECT_EQ(got.preset, want.name) << "the record of it stays";
  }
}

TEST(ApplyPreset, gives_way_to_keys_that_were_given_even_at_their_default) {
  for (const char* preset : {"memory_limited", "large_model"}) {
    task::LmConfig config = small_config();
    for (const char* set :
         {"optim.name=adatam", "optim.correlation_method=manual", "optim.checked=false",
          "optim.large_tensor_threshold=1000", "optim.state_dtype=fp32"}) {
      set_config(config, set);
    }
    set_config(config, concat("optim.preset=", preset));
    const optim::OptimConfig got = apply_preset(config.optim, config.given, module_of(10));
    EXPECT_EQ(got.correlation_method, "manual");
    EXPECT_EQ(got.large_tensor_threshold, 1000);
    EXPECT_FALSE(got.checked);
    EXPECT_EQ(got.state_dtype, "fp32");
  }
}

TEST(ApplyPreset, is_for_rules_of_the_tam_family_only) {
  for (const optim::RuleDefaults& rule : task::lm_rules()) {
    task::LmConfig config;
    config.optim.name = rule.name;
    config.optim.preset = "stable";
    const std::string said = test::refusal([&] { check_config(config); });
    const bool is_tam = rule.name.find("tam") != std::string_view::npos;
    if (is_tam) {
      EXPECT_EQ(said, "") << rule.name;
    } else {
      EXPECT_THAT(said, HasSubstr("[optim.preset] stable is a preset of TAM")) << rule.name;
    }
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
    // Embeddings and vectors take signs of a tenth of muon's rate.
    const bool is_muon = rule.name == "muon";
    ASSERT_EQ(optimizer->param_groups().size(), is_muon ? 3u : 2u);
    for (std::size_t g = 0; g < optimizer->param_groups().size(); ++g) {
      auto& group = optimizer->param_groups()[g];
      EXPECT_DOUBLE_EQ(group.options().get_lr(), is_muon && g > 0 ? 0.1 * rule.peak : rule.peak);
      for (const auto& parameter : group.params()) {
        EXPECT_EQ(parameter.dim() >= 2, g != 1);
      }
    }
    // With zero gradients only weight decay moves anything.
    const torch::Tensor ids = at::zeros({1, 8}, at::kLong);
    const torch::Tensor norm = model->named_parameters()["norm"];
    const torch::Tensor matrix = down_of(*model);
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
  for (const char* name : {"adamw", "sgd", "lion", "tam", "adagrad", "rmsprop", "muon"}) {
    config.optim.name = name;
    config.optim.state_dtype = "8bit";
    const Lessons coded = run(config, 200);
    EXPECT_LT(coded.losses.back(), coded.losses.front()) << name;
    EXPECT_EQ(coded.state_types.at("embed_tokens"), std::set{at::kFloat}) << name;
    EXPECT_EQ(coded.state_types.at("norm"), std::set{at::kFloat}) << name;
    const auto& gate_up = coded.state_types.at("layers.0.mlp.gate_up_proj.weight");
    EXPECT_FALSE(gate_up.contains(at::kFloat)) << name;
    config.optim.state_dtype = "bf16";
    EXPECT_EQ(run(config, 200).state_types.at("embed_tokens"), std::set{at::kBFloat16}) << name;
  }
}

TEST(OptimConfig, refuses_wrong_values_in_one_sentence) {
  for (const auto& [setting, wanted] : std::initializer_list<std::pair<const char*, const char*>>{
           {"optim.name=adamax",
            "sgd, adam, adamw, adagrad, rmsprop, lion, muon, tam, adatam or adatamw"},
           {"optim.weight_decay=-1", "0 to 10, got -1"},
           {"optim.beta1=1", "0 to 0.999999"},
           {"optim.beta2=1", "0 to 0.999999"},
           {"optim.eps=0", "1e-30 to 1"},
           {"optim.momentum=1", "0 to 0.999999"},
           {"optim.decay_rate=2", "0 to 0.999999"},
           {"optim.correlation_method=exact", "manual, auto, cosine_similarity or vectorized"},
           {"optim.fixed_damping=2", "0 to 1"},
           {"optim.large_tensor_threshold=-1", "0 to "},
           {"optim.preset=fast",
            "none, high_performance, stable, large_model, memory_limited or for_model_size"},
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
