// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <vector>

#include "hone/app/eval_lm.h"
#include "hone/app/torch/tune/tuned_model.h"
#include "hone/core/check.h"
#include "hone/core/sha256.h"
#include "hone/data/permute.h"
#include "hone/data/story_grammar.h"
#include "hone/text/token_stream.h"
#include "hone/train/nn/load_llama.h"
#include "hone/train/task/lm/export_lm.h"
#include "hone/train/task/lm/factored_model.h"
#include "hone/train/task/lm/initial_model.h"

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

std::string text_of(const std::string& data) {
  if (data != data::kStoriesName) return read_eval_text(data).front();
  return data::generate_stories(data::StoryGrammar(), kStorySeed, data::StorySeries::HeldOut,
                                kStories);
}

class TunedLanguageModel final : public TunedModel {
 public:
  explicit TunedLanguageModel(const TunedModelOptions& options)
      : initial_(task::open_initial_model(options.model)),
        model_(task::make_llama(
            with_context(initial_.architecture, std::max(kMostWindow, options.least_context)),
            /*seed=*/0)),
        stop_(options.stop) {
    nn::load_llama(*model_, *initial_.file);
    model_->eval();
    const std::string text = text_of(options.data);
    hash_ = sha256_hex_of_text(text);
    cut_windows(text);
    order_.resize(windows_.size());
    for (Index i = 0; i < samples(); ++i) {
      order_[static_cast<std::size_t>(i)] = data::permute(i, samples(), options.seed);
    }
  }

  torch::nn::Module& module() override { return *model_; }
  Index samples() const override { return static_cast<Index>(windows_.size()); }
  Index calibration_samples() const override {
    return count_calibration(samples(), kCalibrationWindows);
  }
  bool has(QualityMetric metric) const override { return metric != QualityMetric::Accuracy; }

  double quality(QualityMetric, Index first, Index count) override {
    double nats = 0;
    Index predicted = 0;
    for_each_batch(first, count, [&](const Tensor& ids, const Tensor& targets) {
      nats += model_->loss_sum(ids, targets).item<double>();
      predicted += targets.ge(0).sum().item<Index>();
    });
    return -nats / static_cast<double>(predicted);
  }

  void calibrate() override {
    const Index count = calibration_samples();
    for_each_batch(0, std::max<Index>(1, count), [&](const Tensor& ids, const Tensor& targets) {
      model_->loss_sum(ids, targets);
    });
  }

  void prepare_run(const SpeedRun& run) override {
    const Index tokens = run.tokens.value_or(std::min(kDefaultTokens, context()));
    HONE_CHECK(tokens <= context(), "speed.tokens",
               concat("at most the model's context of ", context()), tokens);
    std::vector<std::int64_t> ids;
    for (std::size_t i = 0; std::ssize(ids) < run.batch * tokens; ++i) {
      const std::vector<TokenId>& window = windows_[i % windows_.size()];
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

  // Windows as `hone eval` has them: of the context, without overlap, each with BOS in front if the
  // tokenizer adds one.
  void cut_windows(const std::string& text) {
    const text::Tokenizer& tokenizer = *initial_.tokenizer;
    text::TokenStream stream;
    stream.add_document(tokenizer.encode(text, {.add_bos = false}));
    const bool adds_bos = tokenizer.adds_bos() && tokenizer.bos();
    const Index length = std::min(context(), kMostWindow);
    for (const auto& range :
         text::cut_windows(stream.ends, adds_bos ? length - 1 : length, !adds_bos)) {
      std::vector<TokenId>& window = windows_.emplace_back();
      if (adds_bos) window.push_back(*tokenizer.bos());
      window.insert(window.end(), stream.ids.begin() + range.begin, stream.ids.begin() + range.end);
      if (window.size() < 2) windows_.pop_back();
    }
    HONE_REQUIRE(!windows_.empty(), "data", "The text has no token to predict.");
  }

  // Calls take(ids, targets), each [windows, length]; a target is -1 where there is none.
  template <class Take>
  void for_each_batch(Index first, Index count, const Take& take) {
    const torch::NoGradGuard no_grad;
    for (Index begin = first; begin < first + count;) {
      check_not_cancelled(stop_);
      Index end = begin, longest = 0;
      while (end < first + count) {
        const Index length = std::max(longest, std::ssize(window(end)));
        if (end > begin && (end + 1 - begin) * length > kBatchTokens) break;
        longest = length;
        ++end;
      }
      Tensor ids = at::zeros({end - begin, longest - 1}, at::kLong);
      Tensor targets = at::full({end - begin, longest - 1}, -1, at::kLong);
      for (Index row = 0; row < end - begin; ++row) {
        const std::vector<TokenId>& own = window(begin + row);
        auto* id = ids[row].data_ptr<std::int64_t>();
        auto* target = targets[row].data_ptr<std::int64_t>();
        std::copy(own.begin(), own.end() - 1, id);
        std::copy(own.begin() + 1, own.end(), target);
      }
      take(ids, targets);
      begin = end;
    }
  }
  const std::vector<TokenId>& window(Index sample) const {
    return windows_[static_cast<std::size_t>(order_[static_cast<std::size_t>(sample)])];
  }

  task::InitialModel initial_;
  nn::Llama model_;
  const std::atomic<bool>* stop_;
  std::string hash_;
  std::vector<std::vector<TokenId>> windows_;
  std::vector<Index> order_;
  Tensor run_ids_;
};

}  // namespace

std::unique_ptr<TunedModel> open_tuned_lm(const TunedModelOptions& options) {
  return std::make_unique<TunedLanguageModel>(options);
}

}  // namespace hone::app
