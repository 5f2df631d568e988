// SPDX-License-Identifier: Apache-2.0
// Every key of the configuration changes something that a run leaves behind.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "hone/app/torch/train_lm.h"
#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/train/memory/memory_meter.h"
#include "hone/train/nn/linear.h"
#include "hone/train/task/lm/lm_setup.h"
#include "hone/train/tensor_file.h"
#include "hone/train/trainer/metrics_log.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;
using Settings = std::vector<std::string>;

const Settings kBase{"model.hidden_size=32",
                     "model.intermediate_size=48",
                     "model.layers=2",
                     "model.heads=2",
                     "model.context=32",
                     "data.tokenizer=byte",
                     "data.stories=40",
                     "data.held_out_stories=6",
                     "data.validation_tokens=256",
                     "lr.peak=0.01",
                     "lr.warm_up_steps=2",
                     "trainer.steps=6",
                     "trainer.micro_batch=4",
                     "trainer.accumulation_steps=2",
                     "trainer.clip_norm=0.5",
                     "trainer.validate_every=2",
                     "trainer.checkpoint_every=2"};

// What a run of a few steps leaves behind, without what only repeats the configuration.
struct Left {
  // Losses, rates, norms; the exported weights; the names of all files; or why the run failed.
  std::string results;
  Index peak_bytes = 0;
};

Left run(const Settings& settings) {
  const test::TemporaryFolder folder;
  TrainLmJob job{.config = {}, .out = folder.path() / "run", .threads = 1};
  for (const std::string& one : kBase) set_config(job.config, one);
  for (const std::string& one : settings) set_config(job.config, one);
  if (job.config.lr.schedule == "one_cycle") job.config.given.erase("lr.warm_up_steps");
  if (job.config.trainer.clip_value > 0) job.config.given.erase("trainer.clip_norm");
  if (!job.config.model.init.empty() || !job.config.distill.teacher.empty()) {
    job.config.given.erase("data.tokenizer");
  }
  const memory::MemoryMeter meter;
  const Index before = meter.use().current;
  meter.reset_peak();
  testing::internal::CaptureStderr();
  TrainLmResult result;
  try {
    result = train_lm(job);
  } catch (const Error& error) {
    testing::internal::GetCapturedStderr();
    return {.results = error.what()};
  }
  testing::internal::GetCapturedStderr();
  Left left{.results = {}, .peak_bytes = meter.use().peak - before};
  std::ostringstream text;
  text.precision(17);
  for (const trainer::MetricsRow& row : trainer::read_metrics(job.out / "metrics.csv")) {
    text << row.step << ' ' << row.loss << ' ' << row.lr << ' ' << row.grad_norm << ' '
         << row.val_loss.value_or(-1) << '\n';
  }
  text << result.val_loss << ' ' << result.val_bits_per_byte << '\n';
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(job.out)) {
    names.insert(fs::relative(entry.path(), job.out).string());
  }
  for (const std::string& name : names) text << name << '\n';
  left.results = text.str() + read_text_file(result.model / "model.safetensors");
  return left;
}

// A value that is not the one in force, and what else must be set for the key to be read.
struct Change {
  std::string value;
  Settings with = {};
};

std::map<std::string, Change> distill_changes(const fs::path& teacher) {
  const std::string key = "distill.teacher=" + teacher.string();
  const Settings taught{key, "distill.control=false"};
  return {{"distill.teacher", {teacher.string()}},
          {"distill.temperature", {"2", taught}},
          {"distill.alpha", {"0.2", taught}},
          {"distill.control", {"false", {key}}}};
}

std::map<std::string, Change> changes(const fs::path& text, const fs::path& init,
                                      const fs::path& pruned) {
  const Settings tam_auto{"optim.name=tam", "optim.correlation_method=auto"};
  // Weight decay that multiplies the weights by thousands in every step.
  const Settings exploding_sgd{"optim.name=sgd", "lr.peak=1000", "optim.weight_decay=10",
                               "trainer.steps=20"};
  // The same, so that the loss grows from step to step and stays finite.
  const Settings growing_sgd{"optim.name=sgd", "lr.peak=1", "optim.weight_decay=5"};
  Settings skipping = exploding_sgd;
  skipping.push_back("trainer.skip_nonfinite=true");
  const Settings tam{"optim.name=tam"}, one_cycle{"lr.schedule=one_cycle"};
  const Settings small_scale{"amp.precision=fp16", "amp.init_scale=1"};
  const Settings growing_scale{"amp.precision=fp16", "amp.init_scale=1", "amp.growth_interval=1"};
  // Overflows until it has halved about ten times; in fewer steps than end a run.
  const Settings large_scale{"amp.precision=fp16", "amp.init_scale=1e9", "trainer.steps=20"};
  return {{"model.init", {init.string()}},
          {"model.hidden_size", {"64"}},
          {"model.intermediate_size", {"64"}},
          {"model.layers", {"1"}},
          {"model.heads", {"4"}},
          {"model.kv_heads", {"1"}},
          {"model.head_dim", {"8"}},
          {"model.context", {"16"}},
          {"model.rope_theta", {"100"}},
          {"model.norm_eps", {"0.01"}},
          {"model.tied_embeddings", {"false"}},
          {"model.attention_bias", {"true"}},
          {"model.mlp_bias", {"true"}},
          {"data.path", {text.string()}},
          {"data.tokenizer", {"bpe"}},
          {"data.vocab_size", {"300", {"data.tokenizer=bpe"}}},
          {"data.window", {"16"}},
          {"data.windows", {"stream"}},
          {"data.stories", {"50"}},
          {"data.held_out_stories", {"8"}},
          {"data.validation_tokens", {"64"}},
          {"optim.name", {"sgd"}},
          {"optim.weight_decay", {"0.5"}},
          {"optim.beta1", {"0.5"}},
          {"optim.beta2", {"0.5"}},
          {"optim.eps", {"0.1"}},
          {"optim.momentum", {"0.5", tam}},
          {"optim.nesterov", {"true", {"optim.name=sgd"}}},
          {"optim.decay_rate", {"0.5", tam}},
          {"optim.correlation_method", {"vectorized", tam}},
          {"optim.fixed_damping", {"0.5", tam}},
          {"optim.large_tensor_threshold", {"1000000", tam_auto}},
          {"optim.preset", {"large_model", tam}},
          {"optim.state_dtype", {"bf16"}},
          {"lr.schedule", {"linear"}},
          {"lr.peak", {"0.02"}},
          {"lr.warm_up_steps", {"4"}},
          {"lr.final_ratio", {"0.9"}},
          {"lr.rise", {"0.6", one_cycle}},
          {"lr.cycle_momentum", {"true", one_cycle}},
          {"amp.precision", {"bf16"}},
          {"amp.init_scale", {"1", {"amp.precision=fp16"}}},
          {"amp.dynamic", {"false", growing_scale}},
          {"amp.growth_interval", {"1", small_scale}},
          {"amp.hysteresis", {"3", large_scale}},
          {"trainer.ema_decay", {"0.9"}},
          {"trainer.steps", {"7"}},
          {"trainer.micro_batch", {"3"}},
          {"trainer.accumulation_steps", {"1"}},
          {"trainer.clip_norm", {"0.01"}},
          {"trainer.clip_norm_type", {"inf"}},
          {"trainer.clip_value", {"0.001"}},
          {"trainer.seed", {"1"}},
          {"trainer.validate_every", {"3"}},
          {"trainer.checkpoint_every", {"5"}},
          {"trainer.keep_checkpoints", {"3"}},
          {"trainer.keep_zeros", {"true", {"model.init=" + pruned.string()}}},
          {"trainer.export", {"best", growing_sgd}},
          {"trainer.skip_nonfinite", {"true", exploding_sgd}},
          {"trainer.max_skipped_steps", {"2", skipping}},
          {"trainer.metrics", {"jsonl"}}};
}

// Results keep their bits by design: the first two are seen in memory, and the third one, whose
// steps differ only where a new value is not finite, in the test of make_optimizer. The device
// and TF32 need another one, and the libraries of products have equal bits on some CPUs: they are
// seen in the layers.
const std::set<std::string> kSeenElsewhere{"trainer.recompute_every", "trainer.max_memory_mb",
                                           "optim.checked",           "trainer.device",
                                           "trainer.matmul",          "trainer.tf32"};

// What a run leaves behind without these keys, or with them, is why it ended.
const std::set<std::string> kEndsARun{"trainer.skip_nonfinite", "trainer.max_skipped_steps"};

TEST(ConfigKeys, every_key_changes_what_a_run_leaves_behind) {
  const test::TemporaryFolder folder;
  const fs::path text = folder.path() / "text.txt";
  std::string lines;
  for (int i = 0; i < 400; ++i) lines += i % 3 == 0 ? "the cat sat.\n" : "a dog ran.\n";
  write_text_file(text, lines);
  TrainLmJob first{.config = {}, .out = folder.path() / "first", .threads = 1};
  for (const std::string& one : kBase) set_config(first.config, one);
  set_config(first.config, "trainer.seed=9");
  testing::internal::CaptureStderr();
  const fs::path init = train_lm(first).model;
  testing::internal::GetCapturedStderr();
  const fs::path pruned = folder.path() / "pruned";
  fs::copy(init, pruned);
  std::vector<NamedTensor> tensors = read_tensors(MmapFile(init / "model.safetensors"));
  for (NamedTensor& tensor : tensors) {
    if (tensor.name.find("down_proj") != std::string::npos) tensor.value.zero_();
  }
  write_tensors(pruned / "model.safetensors", tensors, {{"format", "pt"}});
  auto known = changes(text, init, pruned);
  known.merge(distill_changes(init));
  std::map<Settings, std::string> without;
  without[{}] = run({}).results;
  ASSERT_TRUE(run({}).results == without[{}]) << "the same run twice leaves the same";
  task::LmConfig config;
  for (const ConfigEntry& entry : config_entries(config)) {
    const std::string name(entry.name);
    if (kSeenElsewhere.contains(name)) continue;
    ASSERT_TRUE(known.contains(name)) << "a new key needs an entry above: " << name;
    const Change& change = known.at(name);
    if (!without.contains(change.with)) without[change.with] = run(change.with).results;
    Settings settings = change.with;
    settings.push_back(name + "=" + change.value);
    const std::string changed = run(settings).results;
    EXPECT_FALSE(changed == without[change.with]) << name;
    if (kEndsARun.contains(name)) continue;
    for (const std::string& results : {without[change.with], changed}) {
      EXPECT_NE(results.find('\n'), std::string::npos) << name << ": " << results;
    }
  }
}

TEST(ConfigKeys, the_library_of_products_reaches_every_linear_layer) {
  const test::TemporaryFolder folder;
  write_text_file(folder.path() / "text.txt", std::string(4000, 'a'));
  for (const auto& [name, backend] :
       {std::pair("mkl", nn::MatmulBackend::Mkl), std::pair("onednn", nn::MatmulBackend::OneDnn)}) {
    task::LmConfig config;
    for (const std::string& one : kBase) set_config(config, one);
    set_config(config, std::string("trainer.matmul=") + name);
    config.data.path = folder.path() / "text.txt";
    Index layers = 0;
    for (const auto& module : task::set_up_lm(config, nullptr).model->modules()) {
      const auto* linear = module->as<nn::LinearImpl>();
      if (linear == nullptr) continue;
      ++layers;
      EXPECT_EQ(linear->backend(), backend) << name;
    }
    EXPECT_GT(layers, 0);
  }
}

TEST(ConfigKeys, recomputation_and_the_memory_limit_lower_the_peak_and_keep_the_losses) {
  const Settings base{"model.layers=6", "trainer.micro_batch=48", "trainer.steps=2",
                      "data.stories=400"};
  const Left plain = run(base);
  Settings recompute = base, limited = base;
  recompute.push_back("trainer.recompute_every=1");
  const Left recomputed = run(recompute);
  EXPECT_TRUE(recomputed.results == plain.results);
  EXPECT_LT(recomputed.peak_bytes, plain.peak_bytes * 8 / 10);
  const Index limit = plain.peak_bytes * 7 / 10 / (1 << 20);
  ASSERT_GE(limit, 2);
  limited.push_back("trainer.max_memory_mb=" + std::to_string(limit));
  const Left kept = run(limited);
  EXPECT_NE(kept.results.find('\n'), std::string::npos) << kept.results;
  EXPECT_GT(kept.peak_bytes, 0);
  EXPECT_LE(kept.peak_bytes, limit << 20);
}

}  // namespace
}  // namespace hone::app
