// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/prefill_stall.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "hone/bench/llm_driver.h"
#include "hone/core/check.h"
#include "hone/core/machine/clock.h"
#include "hone/measure/statistics.h"

namespace hone::bench {
namespace {

using infer::Engine;

constexpr std::size_t kWarmTokens = 8;    // of each sequence, not counted
constexpr std::size_t kAloneTokens = 32;  // of each sequence, before the prompt arrives

// More than a sequence can get before the prompt is computed, with a token of it in each step.
Index decoded_tokens(Index prompt) {
  return prompt + 2 * static_cast<Index>(kWarmTokens + kAloneTokens);
}

double now_ms() { return static_cast<double>(steady_clock().now_ns()) / 1e6; }

// A request, and the times of its tokens in milliseconds.
struct Sequence {
  LlmRun run{};
  std::shared_ptr<std::vector<double>> times = std::make_shared<std::vector<double>>();
  std::size_t before = 0;  // tokens when the prompt arrived

  // Appends the times between tokens from number `first` to `last`.
  void add_gaps(std::size_t first, std::size_t last, std::vector<double>& gaps) const {
    for (std::size_t i = first; i + 1 < last; ++i) gaps.push_back((*times)[i + 1] - (*times)[i]);
  }
};

// What all rounds saw.
struct Gaps {
  std::vector<double> alone, beside, first_token;
};

class Rounds {
 public:
  Rounds(Engine& engine, Index prompt, Index sequences, std::stop_token stop)
      : driver_(engine, std::move(stop), /*seed=*/13), prompt_(prompt), count_(sequences) {}

  void run(Gaps& gaps) {
    std::vector<Sequence> sequences;
    std::vector<LlmRun> runs;
    for (Index i = 0; i < count_; ++i) {
      sequences.push_back(submit(1, decoded_tokens(prompt_)));
      runs.push_back(sequences.back().run);
    }
    driver_.step_until(runs, [&] {
      return std::ranges::all_of(sequences, [](const Sequence& sequence) {
        return sequence.times->size() > kWarmTokens + kAloneTokens;
      });
    });
    for (Sequence& sequence : sequences) {
      sequence.before = sequence.times->size();
      sequence.add_gaps(kWarmTokens, sequence.before, gaps.alone);
    }
    const double start = now_ms();
    const Sequence late = submit(prompt_, 1);
    runs.push_back(late.run);
    driver_.step_until(runs, [&] { return late.run.sink->is_finished(); });
    gaps.first_token.push_back((now_ms() - start) / 1e3);
    for (const Sequence& sequence : sequences) {
      if (sequence.run.sink->is_finished()) {
        fail(ErrorCategory::Internal, "bench llm", "a sequence that outlasts the prompt",
             "one that ended");
      }
      sequence.add_gaps(sequence.before - 1, sequence.times->size(), gaps.beside);
    }
    for (const Sequence& sequence : sequences) driver_.cancel(sequence.run);
  }

 private:
  Sequence submit(Index tokens, Index new_tokens) {
    infer::Request request = driver_.request(driver_.random_tokens(++drawn_, tokens), new_tokens);
    request.salt = drawn_;
    Sequence sequence;
    sequence.run = driver_.submit(std::move(request), [times = sequence.times](const auto& event) {
      if (event.token) times->push_back(now_ms());
      return true;
    });
    return sequence;
  }

  LlmDriver driver_;
  Index prompt_ = 0, count_ = 0;
  std::uint64_t drawn_ = 0;
};

}  // namespace

Index stall_context(Index prompt) { return 1 + decoded_tokens(prompt); }

void bench_prefill_stall(const std::string& subject, Index prompt, std::span<const Index> sequences,
                         Engine& engine, BenchRun& run) {
  HONE_CHECK(prompt > 0, "--beside-prompt", "a positive number of tokens", prompt);
  const BenchOptions& options = run.options();
  const Index rounds = options.repeat > 0 ? options.repeat : options.quick ? 1 : 3;
  for (const Index count : sequences) {
    Rounds work(engine, prompt, count, options.stop);
    Gaps gaps;
    for (Index i = 0; i < rounds; ++i) work.run(gaps);
    const double alone = measure::quantile(gaps.alone, 0.5),
                 beside = measure::quantile(gaps.beside, 0.5);
    const double p99 = measure::quantile(gaps.beside, 0.99), ratio = p99 / alone;
    const double first = measure::quantile(gaps.first_token, 0.5);
    Json row{{"case", concat(subject, "/beside", prompt)},
             {"impl", concat("hone x", count)},
             {"alone_ms", alone},
             {"beside_ms", beside},
             {"p99_ms", p99},
             {"max_ms", measure::quantile(gaps.beside, 1)},
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
