// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/infer/engine.h"
#include "tests/support/peer.h"

namespace hone::test {

// Greedy text of a GGUF file by llama.cpp against hone's logits, position by position on
// llama.cpp's own text. Both round activations of quantized products to int8 per 32 columns and
// keep keys and values in f16 (hone: `--act i8 --kv f16`); llama.cpp rounds the scales of
// activations to f16, hone does not. So logits differ a little, and where two tokens are nearly
// tied the choice may.
class LlamaCppParity {
 public:
  // A near-tie: hone's largest logit lies above that of llama.cpp's token by at most kDeviations
  // times what rounding activations to int8 changes in the logits of the position (root mean
  // square). Both programs round, llama.cpp with 1.5 times the error for K-quants, whose scales are
  // of 256 columns, and two logits are compared: together sqrt(2 + 2 * 1.5^2) = 2.5 deviations, of
  // which three are allowed. A wrong pairing, block layout or scale is off by tens of per cent at
  // almost every position.
  static constexpr double kDeviations = 2.5 * 3;
  // What rounding may change at any position, as a share of its largest |logit|.
  static constexpr double kRounding = 0.02;

  // A random model has many near-ties, of which more differ: its logits are close to each other,
  // and llama.cpp rounds activations to int8 per 256 columns for K-quants.
  explicit LlamaCppParity(const std::filesystem::path& model, bool random = false)
      : model_(model), percent_(random ? 8 : 3) {
    options_.executor = &serial_executor();
    engine_ = infer::Engine::open_or_throw(model, options_);
    infer::EngineOptions options = options_;
    options.activations = infer::Activations::Float32;
    unrounded_ = infer::Engine::open_or_throw(model, options);
  }

  // Both would read a badly converted file alike: over a text, the logits of the file may stand off
  // from those of the model it was made from by this share of their size (root mean squares).
  void expect_logits_of(const std::filesystem::path& original,
                        const std::filesystem::path& tokenizer, const std::string& text,
                        double share) {
    infer::EngineOptions options = options_;
    options.tokenizer = tokenizer;
    const auto source = infer::Engine::open_or_throw(original, options);
    const auto ids = source->tokenizer().encode(text);
    EXPECT_EQ(engine_->tokenizer().encode(text), ids);
    const std::vector<float> ours = logits_of(*engine_, ids), wanted = logits_of(*source, ids);
    ASSERT_EQ(ours.size(), wanted.size());
    double error = 0, size = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      error += std::pow(static_cast<double>(ours[i]) - static_cast<double>(wanted[i]), 2);
      size += std::pow(static_cast<double>(wanted[i]), 2);
    }
    std::printf("%s: logits stand off from the original by %.4f\n", model_.filename().c_str(),
                std::sqrt(error / size));
    EXPECT_LE(std::sqrt(error / size), share);
  }

  // Ids of the prompts must be equal; of all positions at most 3 % (of a random model 8 %) may
  // differ, each a near-tie.
  void expect_same_text(const std::vector<std::string>& prompts, Index tokens) {
    const std::string answer =
        run_peer("tests/support/llama_cpp_greedy.py",
                 {model_.string(), Json(prompts).dump(), std::to_string(tokens)});
    const Json rows = parse_json(answer, "llama.cpp");
    ASSERT_EQ(rows.size(), prompts.size());
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const auto ids = rows[i]["ids"].get<std::vector<infer::TokenId>>();
      ASSERT_EQ(static_cast<Index>(ids.size()), tokens) << prompts[i];
      const auto prompt = engine_->tokenizer().encode(prompts[i]);
      EXPECT_EQ(rows[i]["prompt_ids"], Json(prompt)) << prompts[i];
      compare(prompts[i], prompt, ids);
    }
    const auto positions = static_cast<Index>(prompts.size()) * tokens;
    std::printf("%s: %lld of %lld greedy tokens differ, each a near-tie\n",
                model_.filename().c_str(), static_cast<long long>(differ_),
                static_cast<long long>(positions));
    EXPECT_EQ(std::exchange(compared_, 0), positions);
    EXPECT_LE(differ_ * 100, positions * percent_);
  }

 private:
  static std::vector<float> logits_of(infer::Engine& engine,
                                      const std::vector<infer::TokenId>& ids) {
    std::vector<float> logits;
    engine.score(ids, {.on_logits = [&](Index, Index, std::span<const float> some) {
                   logits.insert(logits.end(), some.begin(), some.end());
                 }});
    return logits;
  }

  void compare(const std::string& name, const std::vector<infer::TokenId>& prompt,
               const std::vector<infer::TokenId>& ids) {
    std::vector<infer::TokenId> text = prompt;
    text.insert(text.end(), ids.begin(), ids.end());
    const auto vocab = static_cast<std::size_t>(engine_->info().architecture.vocab_size);
    const std::vector<float> logits = logits_of(*engine_, text);
    const std::vector<float> unrounded = logits_of(*unrounded_, text);
    ASSERT_EQ(logits.size(), (text.size() - 1) * vocab);
    ASSERT_EQ(unrounded.size(), logits.size());
    for (std::size_t at = prompt.size(); at < text.size(); ++at) {
      const std::size_t row = (at - 1) * vocab;  // the first token has no logits
      compare_position(name, at - prompt.size(), text[at], std::span(logits).subspan(row, vocab),
                       std::span(unrounded).subspan(row, vocab));
    }
  }

  static double deviation(std::span<const float> a, std::span<const float> b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      sum += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    }
    return std::sqrt(sum / static_cast<double>(a.size()));
  }

  void compare_position(const std::string& name, std::size_t at, infer::TokenId theirs,
                        std::span<const float> logits, std::span<const float> unrounded) {
    ++compared_;
    ASSERT_TRUE(std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); }))
        << name << " token " << at;
    const double largest = std::abs(
        *std::ranges::max_element(logits, {}, [](float logit) { return std::abs(logit); }));
    const double rounding = deviation(logits, unrounded);
    EXPECT_LE(rounding, kRounding * largest) << name << " token " << at;
    const auto best = std::ranges::max_element(logits);
    if (best - logits.begin() == theirs) return;
    ++differ_;
    const double margin = *best - logits[static_cast<std::size_t>(theirs)];
    std::printf(
        "  \"%s\" token %zu: hone %lld, llama.cpp %lld, hone's logits differ by %.4f of %.2f, "
        "rounding changes them by %.4f\n",
        name.c_str(), at, static_cast<long long>(best - logits.begin()),
        static_cast<long long>(theirs), margin, largest, rounding);
    EXPECT_LE(margin, kDeviations * rounding) << name << " token " << at;
  }

  std::filesystem::path model_;
  Index percent_;
  infer::EngineOptions options_;
  std::unique_ptr<infer::Engine> engine_, unrounded_;
  Index compared_ = 0, differ_ = 0;
};

}  // namespace hone::test
