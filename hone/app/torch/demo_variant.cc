// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/demo_variant.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/core/progress.h"
#include "hone/infer/engine.h"

namespace hone::app {
namespace {

// Sampling for stories: below 1, as usual for small models; the same for every variant.
constexpr float kTemperature = 0.7f;
constexpr Index kTimedTokens = 64;

std::unique_ptr<infer::Engine> open_engine(const std::filesystem::path& path, Executor& executor) {
  infer::EngineOptions options;
  options.executor = &executor;
  return infer::Engine::open_or_throw(path, options);
}

infer::Request request_for(const infer::Engine& engine, const std::string& prompt) {
  infer::Request request;
  request.tokens = engine.tokenizer().encode(prompt);
  return request;
}

// Whole stories, each ended by the separator or cut at the model's context.
std::vector<std::string> write_stories(infer::Engine& engine, const DemoTask& task) {
  std::vector<std::string> stories;
  HONE_TRACE_ZONE("write stories", {"stories", task.stories});
  Progress progress("writing stories", task.stories, "stories");
  for (Index i = 0; i < task.stories; ++i) {
    infer::Request request = request_for(engine, task.prompt);
    request.sampling.temperature = kTemperature;
    request.sampling.seed = static_cast<std::uint64_t>(i);
    request.max_tokens = engine.info().context - static_cast<Index>(request.tokens.size());
    if (task.grammar != nullptr) request.stop = {std::string(data::kStorySeparator)};
    infer::Result story = engine.generate(std::move(request));
    if (story.finish_reason() == infer::FinishReason::Stop) story.text += data::kStorySeparator;
    stories.push_back(std::move(story.text));
    progress.update(i + 1);
  }
  return stories;
}

data::StoryVerdict judge(const data::StoryGrammar& grammar,
                         const std::vector<std::string>& stories) {
  data::StoryVerdict total;
  for (const std::string& story : stories) {
    const data::StoryVerdict one = grammar.recognize(story);
    total.sentences += one.sentences;
    total.grammatical += one.grammatical;
    total.valid += one.valid;
    total.stories += 1;
    total.finished += one.finished > 0 ? 1 : 0;
    if (!total.first_fault) total.first_fault = one.first_fault;
  }
  return total;
}

}  // namespace

void measure_quality(DemoVariant& variant, const DemoTask& task, Executor& executor) {
  HONE_TRACE_ZONE("measure quality", {"variant", variant.name});
  EvalOptions options;
  options.model = variant.path;
  options.baseline = task.baseline;
  options.documents = task.held_out;
  options.max_tokens = task.eval_tokens;
  variant.eval = evaluate(options, executor);
  const auto engine = open_engine(variant.path, executor);
  const auto stories = write_stories(*engine, task);
  variant.sample = stories.front();
  if (task.grammar != nullptr) variant.verdict = judge(*task.grammar, stories);
}

void measure_speed(std::vector<DemoVariant>& variants, const DemoTask& task, Executor& executor,
                   Measurer& measurer) {
  HONE_TRACE_ZONE("measure speed", {"variants", variants.size()});
  std::vector<std::unique_ptr<infer::Engine>> engines;
  std::vector<Contestant> contestants;
  for (const DemoVariant& variant : variants) {
    engines.push_back(open_engine(variant.path, executor));
    infer::Engine* engine = engines.back().get();
    infer::Request request = request_for(*engine, task.prompt);
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    request.max_tokens = kTimedTokens;
    contestants.push_back({variant.name, [engine, request] { engine->generate(request); }, {}});
  }
  const Measurement measurement = measurer.measure(contestants, {.max_seconds = 8});
  for (std::size_t i = 0; i < variants.size(); ++i) {
    std::vector<double> rates;
    for (const double seconds : measurement.seconds[i]) {
      rates.push_back(static_cast<double>(kTimedTokens) / seconds);
    }
    variants[i].tokens_per_s = measurer.spread(rates);
  }
}

}  // namespace hone::app
