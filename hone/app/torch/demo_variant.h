// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/app/torch/demo.h"

namespace hone::app {

// The task on which all variants are measured.
struct DemoTask {
  std::filesystem::path baseline;               // the fp32 model
  std::vector<std::string> held_out;            // documents
  std::string prompt;                           // start of each generated text
  const data::StoryGrammar* grammar = nullptr;  // null if the text is not a story
  Index eval_tokens = 20000;                    // 0 means all
  Index stories = 40;                           // to generate with each variant
};

// Fills eval, sample and verdict.
void measure_quality(DemoVariant& variant, const DemoTask& task, Executor& executor);

// Fills tokens_per_s of all variants: a short prompt and 64 greedy tokens, in interleaved rounds.
void measure_speed(std::vector<DemoVariant>& variants, const DemoTask& task, Executor& executor,
                   Measurer& measurer);

}  // namespace hone::app
