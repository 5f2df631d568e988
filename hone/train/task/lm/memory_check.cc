// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/lm/memory_check.h"

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/text_format.h"
#include "hone/train/task/lm/predict_memory.h"

namespace hone::task {
namespace {

constexpr Index kMostWindows = 1 << 20, kShortestWindow = 32;

Index megabytes(Index bytes) { return (bytes + 500'000) / 1'000'000; }

[[noreturn]] void refuse(const LmConfig& config, const StepMemory& memory, const char* key,
                         const std::string& change, const std::string& got) {
  const Index window = window_of(config);
  fail(ErrorCategory::Resource, key,
       concat(change, ", so that a step fits in the ", megabytes(memory.free),
              " MB of memory that are free"),
       concat(got, ": ", config.trainer.micro_batch, " windows of ", window, " tokens take about ",
              megabytes(memory.needed), " MB"));
}

}  // namespace

std::string StepMemory::text() const {
  return concat(
      "a step takes about ", megabytes(total), " MB (weights ", megabytes(parts.weights),
      ", gradients ", megabytes(parts.gradients), ", optimizer state ", megabytes(parts.state),
      parts.averages > 0 ? concat(", averages ", megabytes(parts.averages)) : "", ", activations ",
      megabytes(parts.activations), ", workspace ", megabytes(parts.workspace), "); ",
      needed < total ? concat("trainer.max_memory_mb limits it to ", megabytes(needed),
                              " MB by computing layers again and halving micro-batches; ")
                     : "",
      megabytes(free), " MB are free");
}

StepMemory step_memory(const LmConfig& config, const model_io::Architecture& model, Index positions,
                       Index free) {
  StepMemory out{.parts = predict_memory(config, model, config.trainer.micro_batch, positions),
                 .free = free};
  out.total = out.needed = out.parts.total();
  out.fixed = out.total - out.parts.activations - out.parts.workspace;
  const Index limit = trainer::max_memory_bytes(config.trainer);
  if (limit > 0) out.needed = std::min(out.needed, limit);
  return out;
}

Index largest_micro_batch(const LmConfig& config, const model_io::Architecture& model,
                          Index positions, Index free) {
  LmConfig tried = config;
  const auto fits = [&](Index windows) {
    tried.trainer.micro_batch = windows;
    return step_memory(tried, model, positions, free).fits();
  };
  Index good = 0, bad = kMostWindows;
  while (bad - good > 1) {
    const Index next = good == 0 ? 1 : std::min(2 * good, good + (bad - good) / 2);
    (fits(next) ? good : bad) = next;
  }
  return good;
}

void check_memory(const LmConfig& config, const model_io::Architecture& model, Index positions,
                  Index free) {
  const StepMemory memory = step_memory(config, model, positions, free);
  log_info(concat("memory: ", memory.text()));
  if (memory.fixed > memory.needed) {
    fail(ErrorCategory::Resource, "trainer.max_memory_mb",
         concat("more than the ", format_bytes(memory.fixed, ByteUnits::Binary),
                " of weights, gradients and optimizer state"),
         concat(config.trainer.max_memory_mb));
  }
  if (memory.fits()) return;
  const auto of = [](Index windows) { return concat("at most ", windows); };
  if (const Index most = largest_micro_batch(config, model, positions, free); most > 0) {
    refuse(config, memory, "trainer.micro_batch", of(most), concat(config.trainer.micro_batch));
  }
  LmConfig smaller = config;
  smaller.trainer.recompute_every = 1;
  if (const Index most = largest_micro_batch(smaller, model, positions, free); most > 0) {
    refuse(config, memory, "trainer.recompute_every",
           concat("1 and trainer.micro_batch ", of(most)), concat(config.trainer.recompute_every));
  }
  for (Index window = positions / 2; window >= kShortestWindow; window /= 2) {
    if (largest_micro_batch(smaller, model, window, free) == 0) continue;
    refuse(config, memory, "data.window",
           concat(of(window), ", trainer.recompute_every 1 and trainer.micro_batch 1"),
           concat(window_of(config)));
  }
  fail(ErrorCategory::Resource, "model",
       concat("one that fits in the ", megabytes(free), " MB of memory that are free"),
       concat("weights, gradients and optimizer state of ", megabytes(memory.fixed), " MB"));
}

}  // namespace hone::task
