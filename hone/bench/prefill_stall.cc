// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/prefill_stall.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/philox.h"

namespace hone::bench {
namespace {

using infer::Engine;

constexpr std::size_t kWarmTokens = 8;    // of each sequence, not counted
constexpr std::size_t kAloneTokens = 32;  // of each sequence, before the prompt arrives

// More than a sequence can get before the prompt is computed, with a token of it in each step.
Index decoded_tokens(Index prompt) {
  return prompt + 2 * static_cast<Index>(kWarmTokens + kAloneTokens);
}

double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class TokenTimes final : public infer::EventSink {
 public:
  bool try_push(infer::Event&& event) noexcept override {
    if (event.token.has_value()) times.push_back(now_ms());
    finished = finished || event.finished.has_value();
    if (event.finished == infer::FinishReason::Failed) error = std::move(event.error);
    return true;
  }
  // Appends the times between tokens from number `first` on.
  void add_gaps(std::size_t first, std::size_t last, std::vector<double>& gaps) const {
    for (std::size_t i = first; i + 1 < last; ++i) gaps.push_back(times[i + 1] - times[i]);
  }
  std::vector<double> times;
  bool finished = false;
  std::string error;
};

struct Sequence {
  RequestId id = 0;
  std::shared_ptr<TokenTimes> sink{};
  std::size_t before = 0;  // tokens when the prompt arrived
};

// What all rounds saw.
struct Gaps {
  std::vector<double> alone, beside, first_token;
};

class Rounds {
 public:
  Rounds(Engine& engine, Index prompt, Index sequences, const BenchOptions& options)
      : engine_(engine), prompt_(prompt), count_(sequences), options_(options) {}

  void run(Gaps& gaps) {
    std::vector<Sequence> sequences;
    for (Index i = 0; i < count_; ++i) {
      sequences.push_back(submit(1, decoded_tokens(prompt_)));
    }
    step_until([&] {
      return std::ranges::all_of(sequences, [](const Sequence& sequence) {
        check(*sequence.sink);
        return sequence.sink->times.size() > kWarmTokens + kAloneTokens;
      });
    });
    for (Sequence& sequence : sequences) {
      sequence.before = sequence.sink->times.size();
      sequence.sink->add_gaps(kWarmTokens, sequence.before, gaps.alone);
    }
    const double start = now_ms();
    const Sequence late = submit(prompt_, 1);
    step_until([&] { return late.sink->finished; });
    check(*late.sink);
    gaps.first_token.push_back((now_ms() - start) / 1e3);
    for (const Sequence& sequence : sequences) {
      check(*sequence.sink);
      if (sequence.sink->finished) {
        fail(ErrorCategory::Internal, "bench llm", "a sequence that outlasts the prompt",
             "one that ended");
      }
      sequence.sink->add_gaps(sequence.before - 1, sequence.sink->times.size(), gaps.beside);
      engine_.cancel(sequence.id);
    }
    step_until([&] {
      return std::ranges::all_of(sequences,
                                 [](const Sequence& sequence) { return sequence.sink->finished; });
    });
  }

 private:
  Sequence submit(Index tokens, Index new_tokens) {
    const auto vocab = static_cast<std::uint32_t>(engine_.info().architecture.vocab_size);
    infer::Request request;
    for (Index i = 0; i < tokens; ++i) {
      request.tokens.push_back(static_cast<infer::TokenId>(random_.below(vocab)));
    }
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    request.max_tokens = new_tokens;
    request.salt = ++salt_;
    auto sink = std::make_shared<TokenTimes>();
    const RequestId id = engine_.submit(std::move(request), sink);
    return {id, std::move(sink)};
  }
  template <typename Done>
  void step_until(const Done& done) {
    while (!done()) {
      if (options_.stop != nullptr && options_.stop->load()) {
        throw Error(ErrorCategory::Cancelled, "the bench was interrupted");
      }
      if (!engine_.step()) {
        fail(ErrorCategory::Internal, "bench llm", "requests that run", "an idle engine");
      }
    }
  }
  static void check(const TokenTimes& sink) {
    if (!sink.error.empty()) throw Error(ErrorCategory::Resource, "[bench llm] " + sink.error);
  }

  Engine& engine_;
  Index prompt_ = 0, count_ = 0;
  const BenchOptions& options_;
  PhiloxStream random_{13};
  std::uint64_t salt_ = 0;
};

// The value that a share q of all values does not exceed.
double quantile(std::vector<double> values, double q) {
  std::ranges::sort(values);
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<std::size_t>(std::ceil(q * last))];
}

}  // namespace

Index stall_context(Index prompt) { return 1 + decoded_tokens(prompt); }

void bench_prefill_stall(const std::string& subject, Index prompt, std::span<const Index> sequences,
                         Engine& engine, BenchRun& run) {
  HONE_CHECK(prompt > 0, "--beside-prompt", "a positive number of tokens", prompt);
  const BenchOptions& options = run.options();
  const Index rounds = options.repeat > 0 ? options.repeat : options.quick ? 1 : 3;
  for (const Index count : sequences) {
    Rounds work(engine, prompt, count, options);
    Gaps gaps;
    for (Index i = 0; i < rounds; ++i) work.run(gaps);
    const double alone = quantile(gaps.alone, 0.5), beside = quantile(gaps.beside, 0.5);
    const double p99 = quantile(gaps.beside, 0.99), ratio = p99 / alone;
    const double first = quantile(gaps.first_token, 0.5);
    Json row{{"case", concat(subject, "/beside", prompt)},
             {"impl", concat("hone x", count)},
             {"alone_ms", alone},
             {"beside_ms", beside},
             {"p99_ms", p99},
             {"max_ms", quantile(gaps.beside, 1)},
             {"p99_ratio", ratio},
             {"first_token_s", first},
             {"n", gaps.beside.size()},
             {"isa", engine.info().isa},
             {"threads", engine.info().threads}};
    run.add_untimed(std::move(row), concat("time between tokens: ", alone, " ms alone; beside ",
                                           beside, " ms, p99 ", p99, " ms (", ratio,
                                           " times), first token after ", first, " s"));
  }
}

}  // namespace hone::bench
