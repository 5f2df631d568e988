// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <algorithm>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "hone/app/eval_lm.h"
#include "hone/app/eval_windows.h"
#include "hone/app/torch/tune/tuned_model.h"
#include "hone/core/check.h"
#include "hone/core/file/sha256.h"
#include "hone/core/names.h"
#include "hone/data/permute.h"
#include "hone/data/text_source.h"
#include "hone/train/nn/load_llama.h"
#include "hone/train/task/lm/export_lm.h"
#include "hone/train/task/lm/factored_model.h"
#include "hone/train/task/lm/initial_model.h"
#include "hone/train/task/lm/window_batches.h"

namespace hone::app {
namespace {

using text::TokenId;
using torch::Tensor;

// As in `hone eval`.
constexpr Index kMostWindow = 1024;
constexpr Index kCalibrationWindows = 64;
constexpr Index kBatchTokens = 4096;  // few enough for their logits to stay in cache
constexpr Index kDefaultTokens = 128;

model_io::Architecture with_context(model_io::Architecture architecture, Index context) {
  architecture.context = std::min(architecture.context, context);
  return architecture;
}

// Embedded stories of a seed that no run has by default.
constexpr std::uint64_t kStorySeed = 20231;
constexpr Index kStories = 2000;

std::vector<std::string> documents_of(const std::string& data) {
  if (data != data::kStoriesName) return read_eval_text(data);
  return data::generate_story_corpus(data::StoryGrammar(), kStorySeed,
                                     {.train = 0, .held_out = kStories})
      .held_out;
}

// SHA-256 of a text, or of the hashes of several.
std::string hash_of(const std::vector<std::string>& documents) {
  if (documents.size() == 1) return sha256_hex_of_text(documents.front());
  std::string hashes;
  for (const std::string& document : documents) hashes += sha256_hex_of_text(document);
  return sha256_hex_of_text(hashes);
}

// A model whose layers can be factored (model_io::validate).
task::InitialModel open_tunable(const std::filesystem::path& path) {
  task::InitialModel model = task::open_initial_model(path);
  if (!model.architecture.has_default_traits()) {
    fail_unsupported(model.path.string(), "factored layers in a model of the llama family",
                     quote_name(model.architecture.family));
  }
  return model;
}

class TunedLanguageModel final : public TunedModel {
 public:
  explicit TunedLanguageModel(const TunedModelOptions& options)
      : initial_(open_tunable(options.model)),
        model_(task::make_llama(
            with_context(initial_.architecture, std::max(kMostWindow, options.least_context)),
            /*seed=*/0)),
        stop_(options.stop) {
    nn::load_llama(*model_, *initial_.file);
    model_->eval();
    const std::vector<std::string> documents = documents_of(options.data);
    hash_ = hash_of(documents);
    const text::Tokenizer& tokenizer = *initial_.tokenizer;
    windows_ = make_eval_windows(encode_for_eval(tokenizer, documents),
                                 std::min(context(), kMostWindow), window_start(tokenizer));
    HONE_REQUIRE(!windows_.empty(), "data", "The text has no token to predict.");
    order_.resize(windows_.size());
    for (Index i = 0; i < samples(); ++i) {
      order_[static_cast<std::size_t>(i)] = data::permute(i, samples(), options.seed);
    }
  }

  torch::nn::Module& module() override { return *model_; }
  std::string_view sample_name() const override { return "windows"; }
  Index samples() const override { return static_cast<Index>(windows_.size()); }
  Index calibration_samples() const override {
    return count_calibration(samples(), kCalibrationWindows);
  }
  bool has(tuner::QualityMetric metric) const override {
    return metric != tuner::QualityMetric::Accuracy;
  }

  double quality(tuner::QualityMetric, Index first, Index count) override {
    double nats = 0;
    Index predicted = 0;
    for_each_batch(first, count, [&](const Tensor& ids, const Tensor& targets) {
      nats += model_->loss_sum(ids, targets).item<double>();
      predicted += targets.numel();
    });
    return -nats / static_cast<double>(predicted);
  }

  void calibrate() override {
    const Index count = calibration_samples();
    for_each_batch(0, std::max<Index>(1, count), [&](const Tensor& ids, const Tensor& targets) {
      model_->loss_sum(ids, targets);
    });
  }

  void prepare_run(const tuner::SpeedRun& run) override {
    const Index tokens = run.tokens.value_or(std::min(kDefaultTokens, context()));
    HONE_CHECK(tokens <= context(), "speed.tokens",
               concat("at most the model's context of ", context()), tokens);
    std::vector<std::int64_t> ids;
    for (std::size_t i = 0; std::ssize(ids) < run.batch * tokens; ++i) {
      const std::vector<TokenId>& window = windows_[i % windows_.size()].tokens;
      ids.insert(ids.end(), window.begin(), window.end());
    }
    ids.resize(static_cast<std::size_t>(run.batch * tokens));
    run_ids_ = at::tensor(ids, at::kLong).view({run.batch, tokens});
  }
  void run_once() override {
    const torch::NoGradGuard no_grad;
    model_->forward(run_ids_);
  }

  std::string data_hash() const override { return hash_; }

  void write(const std::filesystem::path& folder) override {
    task::export_lm(folder, *model_,
                    {.tokenizer = initial_.tokenizer.get(),
                     .generation_defaults = initial_.generation_defaults,
                     .context = initial_.architecture.context});
  }

 private:
  Index context() const { return model_->architecture().context; }

  // Calls take(ids, targets), each [windows, length].
  template <class Take>
  void for_each_batch(Index first, Index count, const Take& take) {
    const torch::NoGradGuard no_grad;
    std::vector<std::span<const TokenId>> windows;
    for (Index i = first; i < first + count; ++i) {
      windows.emplace_back(
          windows_[static_cast<std::size_t>(order_[static_cast<std::size_t>(i)])].tokens);
    }
    task::for_each_window_batch(windows, kBatchTokens,
                                [&](const Tensor& ids, const Tensor& targets) {
                                  check_not_cancelled(stop_);
                                  take(ids, targets);
                                });
  }

  task::InitialModel initial_;
  nn::Llama model_;
  std::stop_token stop_;
  std::string hash_;
  std::vector<EvalWindow> windows_;  // as `hone eval` and the end of training have them
  std::vector<Index> order_;
  Tensor run_ids_;
};

}  // namespace

std::unique_ptr<TunedModel> open_tuned_lm(const TunedModelOptions& options) {
  return std::make_unique<TunedLanguageModel>(options);
}

}  // namespace hone::app
