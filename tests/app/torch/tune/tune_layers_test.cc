// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/tune/tune_layers.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <filesystem>
#include <memory>
#include <string>

#include "hone/app/torch/train_lm.h"
#include "hone/app/torch/train_vision.h"
#include "hone/app/torch/tune/tuned_model.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/sha256.h"
#include "hone/core/log.h"
#include "hone/train/nn/load_llama.h"
#include "hone/train/sketch/factored_linear.h"
#include "hone/train/sketch/sketched_conv.h"
#include "hone/train/surgery/layer_select.h"
#include "hone/train/task/lm/export_lm.h"
#include "hone/train/task/lm/factored_model.h"
#include "hone/train/task/lm/initial_model.h"
#include "hone/train/task/vision/vision_model.h"
#include "tests/support/error_of.h"
#include "tests/support/image_files.h"
#include "tests/support/stop_flag.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;
using test::refusal;
using testing::HasSubstr;

constexpr const char* kPerplexity =
    "kind = \"layers\"\nquality = { metric = \"perplexity\", max_ratio = 1.0001 }\n"
    "search = { name = \"grid\", repeats = 2 }\n";
constexpr const char* kDown = "[[layers]]\nselect = \"mlp.down_proj$\"\n";
constexpr const char* kSketch =
    "[[layers]]\nselect = \"layers.0.self_attn.qkv_proj\"\n"
    "params = { rank = 16, mode = \"sketched\" }\n";

// A language model that was trained for a moment, in which mlp.down_proj has rank 8 but for a
// little noise. The other products have flat spectra.
class TuneLayers : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    set_log_level(LogLevel::Error);
    folder_ = std::make_unique<test::TemporaryFolder>();
    std::string text;
    for (int i = 0; i < 400; ++i) {
      text += i % 3 == 0 ? "the cat sat on a mat.\n" : i % 5 == 0 ? "so it was.\n" : "a dog ran.\n";
    }
    write_text_file(path("text.txt"), text);
    TrainLmJob job;
    job.config.data.path = path("text.txt");
    for (const char* setting :
         {"model.hidden_size=64", "model.intermediate_size=128", "model.layers=2", "model.heads=4",
          "model.kv_heads=2", "model.head_dim=16", "model.context=32", "data.vocab_size=264",
          "lr.peak=0.01", "lr.warm_up_steps=2", "trainer.steps=60", "trainer.micro_batch=4",
          "trainer.validate_every=0"}) {
      set_config(job.config, setting);
    }
    job.out = path("run");
    job.threads = 1;
    plant(train_lm(job).model);
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static fs::path path(const std::string& name) { return folder_->path() / name; }
  static nn::Llama open(const fs::path& folder) {
    const task::InitialModel initial = task::open_initial_model(folder);
    nn::Llama model = task::make_llama(initial.architecture, 0);
    nn::load_llama(*model, *initial.file);
    return model;
  }
  static void plant(const fs::path& trained) {
    const torch::NoGradGuard no_grad;
    nn::Llama model = open(trained);
    at::manual_seed(1);
    for (const nn::Layer& layer : nn::select_layers(*model, {.pattern = {"down_proj$"}})) {
      const torch::Tensor& weight = layer.module->as<torch::nn::LinearImpl>()->weight;
      const auto [u, s, vh] = at::linalg_svd(weight, /*full_matrices=*/false);
      const torch::Tensor low = (u.narrow(1, 0, 8) * s.narrow(0, 0, 8)).matmul(vh.narrow(0, 0, 8));
      weight.copy_(low + at::randn_like(weight) * 1e-6);
    }
    const task::InitialModel initial = task::open_initial_model(trained);
    task::export_lm(path("planted"), *model, {.tokenizer = initial.tokenizer.get()});
  }

  static TuneJob job_of(const std::string& out, const std::string& space) {
    write_text_file(path(out + ".toml"), space);
    return {.model = path("planted"),
            .space = path(out + ".toml"),
            .out = path(out),
            .data = path("text.txt").string(),
            .threads = 1};
  }
  static Json search_of(const TuneJob& job) { return read_json_file(job.out / "search.json"); }
  static std::string weights_of(const fs::path& folder) {
    return sha256_hex(folder / "model.safetensors");
  }

  static std::unique_ptr<test::TemporaryFolder> folder_;
};
std::unique_ptr<test::TemporaryFolder> TuneLayers::folder_;

TEST_F(TuneLayers, finds_the_planted_rank_and_writes_a_model_that_keeps_the_limit) {
  const std::string before = weights_of(path("planted"));
  const TuneJob job = job_of("feasible", std::string(kPerplexity) + kDown);
  const TuneOutcome outcome = tune_layers(job);
  ASSERT_TRUE(outcome.is_met) << outcome.text;
  EXPECT_EQ(weights_of(path("planted")), before) << "the model is never modified";
  ASSERT_EQ(outcome.document.at("layers").size(), 2u);
  nn::Llama written = open(job.out / "model");
  for (const Json& layer : outcome.document.at("layers")) {
    EXPECT_LT(layer.at("error").get<double>(), 1e-3);
    EXPECT_LT(layer.at("bytes").get<Index>(), layer.at("dense_bytes").get<Index>());
    EXPECT_LT(layer.at("flops").get<Index>(), layer.at("dense_flops").get<Index>());
    const auto name = layer.at("layer").get<std::string>();
    const auto* factored = nn::find_layer(*written, name).module->as<nn::FactoredLinearImpl>();
    ASSERT_NE(factored, nullptr) << name;
    EXPECT_EQ(factored->options().rank, layer.at("rank").get<Index>());
    EXPECT_EQ(layer.at("rank"), 16) << "the smallest rank within the limit";
  }
  const Json &own = outcome.document.at("after"), &dense = outcome.document.at("before");
  EXPECT_LT(own.at("bytes").get<Index>(), dense.at("bytes").get<Index>());
  EXPECT_LE(own.at("perplexity").get<double>(), 1.0001 * dense.at("perplexity").get<double>());
  EXPECT_THAT(outcome.text, HasSubstr("down_proj (FactoredLinear), in a Slot"));
  EXPECT_EQ(read_json_file(job.out / "layers.json"), outcome.document);
  const TuneOutcome checked = check_tuned(job);
  EXPECT_TRUE(checked.is_met) << checked.text;
  const Json& held_back = outcome.document.at("held_back");
  const double quality =
      held_back.at("unchanged").get<double>() + held_back.at("change").get<double>();
  EXPECT_NEAR(checked.document.at("quality").get<double>(), quality, 1e-6);
  EXPECT_LE(held_back.at("low").get<double>(), held_back.at("change").get<double>());
  EXPECT_THAT(outcome.text, HasSubstr("on samples held back"));
  TuneJob other = job;
  write_text_file(path("other.txt"), read_text_file(path("text.txt")) + "a dog sat.\n");
  other.data = path("other.txt").string();
  EXPECT_THAT(check_tuned(other).text, HasSubstr("other data"));
  Json recorded = outcome.document;
  recorded["held_back"]["least_quality"] = quality + 1e-3;
  write_json_file(job.out / "layers.json", recorded);
  EXPECT_FALSE(check_tuned(job).is_met) << "a limit that the model misses";
}

TEST_F(TuneLayers, says_that_a_flat_spectrum_is_infeasible_and_shows_the_nearest_model) {
  const TuneJob job = job_of(
      "infeasible", std::string(kPerplexity) +
                        "[[layers]]\nselect = \"gate_up_proj\"\nparams = { rank = [8, 16] }\n");
  const TuneOutcome outcome = tune_layers(job);
  EXPECT_FALSE(outcome.is_met);
  EXPECT_FALSE(fs::exists(job.out / "model"));
  EXPECT_THAT(outcome.text, HasSubstr("infeasible: the nearest model has\n"));
  const Json& nearest = outcome.document.at("after");
  EXPECT_GT(nearest.at("perplexity").get<double>(),
            1.0001 * outcome.document.at("before").at("perplexity").get<double>());
  ASSERT_EQ(outcome.document.at("layers").size(), 1u) << "one layer alone is nearer than two";
  EXPECT_EQ(outcome.document.at("layers")[0].at("rank"), 16);
  EXPECT_THAT(refusal([&] { check_tuned(job); }), HasSubstr("no model that could be checked"));
}

TEST_F(TuneLayers, goes_on_after_any_evaluation_with_the_same_trials) {
  const std::string space = std::string(kPerplexity) + kDown;
  const TuneJob whole = job_of("whole", space);
  const TuneOutcome expected = tune_layers(whole);
  const Json log = search_of(whole);
  const std::size_t evaluations = log.at("evaluations").size();
  ASSERT_GE(evaluations, 5u);
  for (const std::size_t kept : {std::size_t{0}, std::size_t{2}, evaluations - 1}) {
    const TuneJob job = job_of("cut" + std::to_string(kept), space);
    fs::create_directories(job.out);
    fs::copy(whole.out / "tune.json", job.out / "tune.json");
    Json cut = log;
    cut["evaluations"].erase(cut["evaluations"].begin() + static_cast<std::ptrdiff_t>(kept),
                             cut["evaluations"].end());
    write_json_file(job.out / "search.json", cut);
    const TuneOutcome resumed = tune_layers(job);
    EXPECT_EQ(search_of(job), log) << kept;
    EXPECT_EQ(resumed.document.at("search"), expected.document.at("search")) << kept;
    EXPECT_EQ(weights_of(job.out / "model"), weights_of(whole.out / "model")) << kept;
  }
}

TEST_F(TuneLayers, can_be_interrupted_and_goes_on) {
  TuneJob job = job_of("stopped", std::string(kPerplexity) + kSketch);
  const hone::test::StopFlag stop{true};
  job.stop = stop;
  for (const std::string& data : {std::string("stories"), job.data}) {
    job.data = data;
    job.out = path(data == "stories" ? "stopped_on_stories" : "stopped");
    EXPECT_FALSE(refusal([&] { tune_layers(job); }, ErrorCategory::Cancelled).empty()) << data;
  }
  job.stop = {};
  EXPECT_FALSE(tune_layers(job).is_met) << "a projection of a flat spectrum";
}

TEST_F(TuneLayers, refuses_the_folder_of_another_search_and_those_of_its_inputs) {
  const std::string space = std::string(kPerplexity) + kSketch;
  TuneJob job = job_of("taken", space);
  tune_layers(job);
  EXPECT_FALSE(tune_layers(job).is_met) << "the same search is only read";
  write_text_file(job.space, space + "separate = false\n");
  EXPECT_THAT(refusal([&] { tune_layers(job); }), HasSubstr("another space"));
  write_text_file(job.space, space);
  job.seed = 3;
  EXPECT_THAT(refusal([&] { tune_layers(job); }), HasSubstr("another seed"));
  job.seed.reset();
  std::string other;
  for (int i = 0; i < 40; ++i) other += "a mat sat on the cat. so it was.\n";
  write_text_file(path("other.txt"), other);
  job.data = path("other.txt").string();
  EXPECT_THAT(refusal([&] { tune_layers(job); }), HasSubstr("a search on other data"));
  job = job_of("notes", space);
  fs::create_directories(job.out);
  write_text_file(job.out / "mine.txt", "mine");
  EXPECT_THAT(refusal([&] { tune_layers(job); }), HasSubstr("files of something else"));
  job = job_of("spared", space);
  for (const fs::path& out : {path("planted"), path("planted") / "out", folder_->path()}) {
    job.out = out;
    EXPECT_FALSE(refusal([&] { tune_layers(job); }).empty()) << out;
  }
  write_text_file(path("spared.toml"), "kind = \"layers\"\nquality = { metric = \"accuracy\" }\n" +
                                           std::string(kSketch));
  job.out = path("metric");
  EXPECT_THAT(refusal([&] { tune_layers(job); }), HasSubstr("perplexity or loss"));
}

// Stories of the seed that `hone tune` has are the held-out stories of a run with that seed.
TEST_F(TuneLayers, refuses_data_that_would_calibrate_and_measure_alike) {
  TuneJob job = job_of("short", std::string(kPerplexity) + kSketch);
  job.data = path("short.txt").string();
  for (const char* text : {"a mat sat on the cat.\n", "a mat sat."}) {
    write_text_file(job.data, text);
    EXPECT_THAT(refusal([&] { tune_layers(job); }),
                HasSubstr("expected 3 windows (search.repeats = 2, and an eighth for "
                          "calibration), got 1"));
  }
}

TEST_F(TuneLayers, measures_stories_as_training_does) {
  TrainLmJob job;
  for (const char* setting :
       {"model.hidden_size=32", "model.intermediate_size=64", "model.layers=1", "model.heads=2",
        "model.context=48", "data.vocab_size=300", "data.stories=300", "data.held_out_stories=2000",
        "lr.peak=0.01", "lr.warm_up_steps=2", "trainer.seed=20231", "trainer.steps=80",
        "trainer.micro_batch=8", "trainer.validate_every=0"}) {
    set_config(job.config, setting);
  }
  job.out = path("story_run");
  job.threads = 1;
  const TrainLmResult trained = train_lm(job);
  const auto model = open_tuned_lm({.model = trained.model, .data = "stories", .seed = 5});
  const double loss = -model->quality(tuner::QualityMetric::Loss, 0, model->samples());
  EXPECT_NEAR(loss, trained.val_loss, 1e-5 * loss);

  // A search leaves out the samples for calibration, which are random ones.
  TuneJob tuned = job_of("stories",
                         "kind = \"layers\"\nquality = { metric = \"loss\" }\n"
                         "search = { name = \"grid\" }\n"
                         "[[layers]]\nselect = \"down_proj\"\n"
                         "params = { rank = 8, fit = \"activation\" }\n");
  tuned.model = trained.model;
  tuned.data = "stories";
  const TuneOutcome outcome = tune_layers(tuned);
  EXPECT_NEAR(outcome.document.at("before").at("loss").get<double>(), loss, 0.01 * loss);
}

TEST_F(TuneLayers, measures_speed_where_it_decides) {
  const std::string head =
      "kind = \"layers\"\nquality = { metric = \"loss\", max_ratio = 1.5 }\n"
      "search = { trials = 2 }\nspeed = { batch = 1, tokens = 32 }\n";
  const TuneJob job =
      job_of("fast", head + kDown + "params = { rank = [4, 16], fit = \"activation\" }\n");
  const TuneOutcome outcome = tune_layers(job);
  EXPECT_GT(outcome.document.at("before").at("runs_per_s").get<double>(), 0);
  EXPECT_EQ(outcome.document.at("cost"), "seconds");
  EXPECT_EQ(fs::exists(job.out / "model"), outcome.is_met);
  const Json again = tune_layers(job).document;
  EXPECT_EQ(again.at("speedup"), outcome.document.at("speedup")) << "what was measured is kept";
  EXPECT_EQ(again.at("search"), outcome.document.at("search"));
  if (!outcome.is_met) {
    EXPECT_THAT(outcome.text, HasSubstr("no model within the limit is faster"));
    return;
  }
  const Json& speedup = outcome.document.at("speedup");
  EXPECT_GT(speedup.at("low").get<double>(), 1) << "a model that may be slower is not written";
  EXPECT_LE(speedup.at("low").get<double>(), speedup.at("ratio").get<double>());
  EXPECT_GE(speedup.at("high").get<double>(), speedup.at("ratio").get<double>());
}

TEST_F(TuneLayers, replaces_convolutions_of_a_classifier) {
  test::write_bar_folder(path("bars"), 12, 4, 200, 40);
  TrainVisionJob training;
  training.config.model = {.name = "resnet20", .width = 8};
  training.config.data.path = path("bars");
  training.config.lr.warm_up_steps = 2;
  training.config.trainer.steps = 8;
  training.config.trainer.micro_batch = 20;
  training.out = path("vision");
  training.threads = 1;
  TuneJob job = job_of("convs",
                       "kind = \"layers\"\nquality = { metric = \"accuracy\", max_drop = 1.0 }\n"
                       "search = { name = \"random\", trials = 2 }\n"
                       "[[layers]]\nselect = \"layer2..*conv2\"\n"
                       "params = { rank = [4, 8], mode = [\"lowrank\", \"sketched\"] }\n"
                       "separate = false\n");
  job.model = train_vision(training).model;
  job.data = path("bars").string();
  const TuneOutcome outcome = tune_layers(job);
  ASSERT_TRUE(outcome.is_met) << outcome.text;
  EXPECT_EQ(outcome.document.at("layers").size(), 3u) << "a stage of ResNet-20 has three blocks";
  task::VisionModel written = task::read_vision_model(job.out / "model");
  EXPECT_NE(nn::find_layer(*written.net, "layer2.0.conv2").module->as<nn::SketchedConv2dImpl>(),
            nullptr);
  const TuneOutcome checked = check_tuned(job);
  EXPECT_TRUE(checked.is_met);
  const Json& held_back = outcome.document.at("held_back");
  EXPECT_NEAR(checked.document.at("value").get<double>(),
              held_back.at("unchanged").get<double>() + held_back.at("change").get<double>(), 1e-9);
}

}  // namespace
}  // namespace hone::app
