// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/lm/lm_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "tests/support/error_of.h"

namespace hone::task {
namespace {

using test::refusal;
using testing::HasSubstr;

TEST(LmConfig, reads_every_type_and_keeps_the_rest) {
  LmConfig config;
  read_config_text(config,
                   "[model]\nlayers = 7\ntied_embeddings = false\n[lr]\npeak = 0.002\n"
                   "[optim]\nname = \"tam\"\nmomentum = 1\n",
                   "t.toml");
  EXPECT_EQ(config.model.layers, 7);
  EXPECT_FALSE(config.model.tied_embeddings);
  EXPECT_EQ(config.lr.peak, 0.002);
  EXPECT_EQ(config.optim.name, "tam");
  EXPECT_EQ(config.optim.momentum, 1.0);
  EXPECT_EQ(config.model.heads, LmConfig().model.heads);
}

TEST(LmConfig, names_file_line_and_nearest_key_of_an_unknown_one) {
  LmConfig config;
  const std::string message =
      refusal([&] { read_config_text(config, "[lr]\npeak = 1e-3\nwarm_up_stps = 4\n", "t.toml"); });
  EXPECT_THAT(message, HasSubstr("t.toml:3"));
  EXPECT_THAT(message, HasSubstr("'lr.warm_up_stps'"));
  EXPECT_THAT(message, HasSubstr("'lr.warm_up_steps'"));
  EXPECT_EQ(config.lr.peak, LmConfig().lr.peak) << "a refused file changes nothing";
}

TEST(LmConfig, refuses_wrong_types_and_damaged_toml_by_line) {
  LmConfig config;
  const auto read = [&](const char* text) {
    return refusal([&] { read_config_text(config, text, "t.toml"); });
  };
  EXPECT_THAT(read("[model]\nlayers = \"six\"\n"), HasSubstr("t.toml:2"));
  EXPECT_THAT(read("[model]\nlayers = 1.5\n"), HasSubstr("integer"));
  EXPECT_THAT(read("[optim]\nname = 3\n"), HasSubstr("string"));
  EXPECT_THAT(read("[model]\ntied_embeddings = 1\n"), HasSubstr("boolean"));
  EXPECT_THAT(read("[model]\n\nlayers = = 2\n"), HasSubstr("t.toml:3"));
  EXPECT_THAT(read("model = 3\n"), HasSubstr("'model'"));
}

TEST(LmConfig, has_windows_of_the_context_or_shorter_ones_for_a_trained_model) {
  LmConfig config;
  EXPECT_EQ(window_of(config), config.model.context);
  config.model.context = 4096;
  EXPECT_EQ(window_of(config), 4096);
  config.model.init = "model";
  EXPECT_EQ(window_of(config), 512);
  config.model.context = 128;
  EXPECT_EQ(window_of(config), 128);
  config.data.window = 64;
  EXPECT_EQ(window_of(config), 64);
  config.data.window = 129;
  EXPECT_THAT(refusal([&] { check_config(config); }), HasSubstr("[data.window] expected 2 to 128"));
}

TEST(LmConfig, takes_assignments_with_and_without_quotes) {
  LmConfig config;
  set_config(config, "optim.name=sgd");
  set_config(config, "lr.peak=2e-3");
  set_config(config, "model.mlp_bias=true");
  set_config(config, "data.path=\"a b\"");
  EXPECT_EQ(config.optim.name, "sgd");
  EXPECT_EQ(config.lr.peak, 2e-3);
  EXPECT_TRUE(config.model.mlp_bias);
  EXPECT_EQ(config.data.path, "a b");
  set_config(config, "trainer.metrics=csv,jsonl");
  EXPECT_THAT(config.trainer.metrics, testing::ElementsAre("csv", "jsonl"));
  set_config(config, "trainer.metrics=[\"tensorboard\"]");
  EXPECT_THAT(config.trainer.metrics, testing::ElementsAre("tensorboard"));
  EXPECT_THAT(refusal([&] { set_config(config, "trainer.metrics=[1]"); }), HasSubstr("strings"));
  EXPECT_THAT(refusal([&] { set_config(config, "trainer.step=3"); }), HasSubstr("trainer.steps"));
  EXPECT_THAT(refusal([&] { set_config(config, "trainer.steps"); }), HasSubstr("key=value"));
  EXPECT_THAT(refusal([&] { set_config(config, "trainer.steps=many"); }), HasSubstr("steps"));
}

TEST(LmConfig, refuses_values_out_of_range_by_key) {
  EXPECT_EQ(refusal([] { check_config(LmConfig()); }), "");
  for (const char* bad : {"model.heads=0",
                          "model.kv_heads=2",
                          "model.head_dim=7",
                          "model.hidden_size=33",
                          "data.tokenizer=words",
                          "data.vocab_size=100",
                          "optim.name=adamax",
                          "optim.beta1=1",
                          "lr.final_ratio=2",
                          "lr.peak=-1",
                          "lr.schedule=step",
                          "lr.rise=1",
                          "trainer.steps=0",
                          "trainer.micro_batch=0",
                          "trainer.clip_norm=-1",
                          "trainer.keep_checkpoints=0",
                          "trainer.matmul=blas",
                          "trainer.recompute_every=-1",
                          "trainer.metrics=xml",
                          "trainer.max_memory_mb=-1",
                          "trainer.device=gpu",
                          "trainer.device=cuda:-1",
                          "trainer.clip_value=-1",
                          "trainer.clip_norm_type=0",
                          "trainer.clip_norm_type=two",
                          "trainer.clip_norm_type=nan"}) {
    LmConfig config;
    set_config(config, bad);
    const std::string key = std::string(bad).substr(0, std::string(bad).find('='));
    EXPECT_THAT(refusal([&] { check_config(config); }), HasSubstr(key)) << bad;
  }
}

TEST(LmConfig, takes_one_way_of_clipping) {
  LmConfig config;
  set_config(config, "trainer.clip_value=0.5");
  set_config(config, "trainer.clip_norm_type=inf");
  EXPECT_EQ(refusal([&] { check_config(config); }), "") << "the default of clip_norm is not used";
  EXPECT_TRUE(std::isinf(trainer::norm_type_of(config.trainer.clip_norm_type)));
  EXPECT_EQ(trainer::norm_type_of("1.5"), 1.5);
  set_config(config, "trainer.clip_norm=2");
  EXPECT_THAT(
      refusal([&] { check_config(config); }),
      testing::AllOf(HasSubstr("trainer.clip_norm"), HasSubstr("trainer.clip_value = 0.5")));
}

TEST(LmConfig, survives_being_written_and_read) {
  LmConfig config;
  config.optim.eps = 1e-10;
  config.lr.peak = 1.0 / 3;
  config.data.path = "C:\\a \"b\"\n";
  config.model.mlp_bias = true;
  config.trainer.metrics = {"csv", "jsonl"};
  LmConfig again;
  read_config_text(again, to_toml(config), "t.toml");
  EXPECT_EQ(to_json(again), to_json(config));
}

TEST(LmConfig, refuses_a_changed_key_by_name_and_lets_some_change) {
  const LmConfig before;
  LmConfig now = before;
  now.trainer.checkpoint_every = 3;
  now.data.path = "moved.txt";
  now.trainer.steps = 2000;
  EXPECT_EQ(refusal([&] { check_same_run(to_json(before), now); }), "");
  EXPECT_EQ(config_hash(before), config_hash(now));
  now.lr.peak = 0.1;
  EXPECT_THAT(refusal([&] { check_same_run(to_json(before), now); }), HasSubstr("lr.peak"));
  EXPECT_NE(config_hash(before), config_hash(now));
}

TEST(LmConfig, refuses_a_given_key_that_rule_schedule_or_precision_ignores) {
  const auto refused = [](std::initializer_list<const char*> settings) {
    LmConfig config;
    for (const char* setting : settings) set_config(config, setting);
    return refusal([&] { check_config(config); });
  };
  EXPECT_THAT(refused({"optim.nesterov=true"}),
              HasSubstr("[optim.nesterov] This key has no effect"));
  EXPECT_THAT(refused({"optim.nesterov=false"}), HasSubstr("optim.name = adamw"));
  EXPECT_THAT(refused({"optim.name=sgd", "optim.beta2=0.9"}), HasSubstr("optim.name = sgd"));
  EXPECT_THAT(refused({"lr.schedule=constant", "lr.final_ratio=0.1"}), HasSubstr("lr.final_ratio"));
  EXPECT_THAT(refused({"lr.schedule=one_cycle", "lr.warm_up_steps=1"}), HasSubstr("one_cycle"));
  EXPECT_THAT(refused({"lr.rise=0.5"}), HasSubstr("lr.schedule = cosine"));
  EXPECT_THAT(refused({"amp.init_scale=8"}), HasSubstr("amp.precision = fp32"));
  EXPECT_THAT(refused({"data.tokenizer=byte", "data.vocab_size=512"}), HasSubstr("vocab_size"));
  EXPECT_EQ(refused({"optim.name=sgd", "optim.nesterov=true"}), "");
  EXPECT_EQ(refused({"amp.init_scale=8", "amp.precision=fp16"}), "") << "in any order";
  LmConfig unspoken;
  unspoken.optim.name = "sgd";
  unspoken.optim.beta2 = 0.5;
  EXPECT_EQ(refusal([&] { check_config(unspoken); }), "") << "neither in a file nor by --set";
}

TEST(LmConfig, of_a_run_is_read_back_without_a_complaint) {
  for (const optim::RuleDefaults& rule : lm_rules()) {
    for (const char* schedule : {"cosine", "constant", "one_cycle"}) {
      LmConfig config, again;
      config.optim.name = rule.name;
      config.lr.schedule = schedule;
      read_config_text(again, to_toml(config), "train.toml");
      EXPECT_EQ(refusal([&] { check_config(again); }), "") << rule.name << ' ' << schedule;
      EXPECT_EQ(refusal([&] { check_same_run(to_json(config), again); }), "");
    }
  }
}

// Every key moves the architecture, the optimizer, or is read by the trainer's own tests.
TEST(LmConfig, model_keys_reach_the_architecture) {
  LmConfig config;
  for (const char* set :
       {"model.hidden_size=96", "model.heads=6", "model.kv_heads=2", "model.head_dim=8",
        "model.context=32", "model.rope_theta=500", "model.norm_eps=1e-4",
        "model.tied_embeddings=false", "model.attention_bias=true", "model.mlp_bias=true"}) {
    set_config(config, set);
  }
  const model_io::Architecture a = make_architecture(config, 300);
  EXPECT_EQ(a.vocab_size, 300);
  EXPECT_EQ(a.hidden_size, 96);
  EXPECT_EQ(a.kv_heads, 2);
  EXPECT_EQ(a.head_dim, 8);
  EXPECT_EQ(a.rope.rotary_dims, 8);
  EXPECT_EQ(a.rope.theta, 500);
  EXPECT_EQ(a.norm_eps, 1e-4);
  EXPECT_TRUE(!a.tied_embeddings && a.attention_bias && a.mlp_bias && a.context == 32);
}

}  // namespace
}  // namespace hone::task
