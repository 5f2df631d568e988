// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/app/torch/demo.h"

namespace hone::app {

// What all variants are measured on.
struct DemoTask {
  std::filesystem::path baseline;               // the fp32 model
  std::vector<std::string> held_out;            // documents
  std::string prompt;                           // what generation starts from
  const data::StoryGrammar* grammar = nullptr;  // null: the text is no story
  Index eval_tokens = 20000;                    // 0: all
  Index stories = 40;                           // generated with each variant
};

// Fills eval, sample and verdict.
void measure_quality(DemoVariant& variant, const DemoTask& task, Executor& executor);

// Fills tokens_per_s of all variants: a short prompt and 64 greedy tokens, in interleaved rounds.
void measure_speed(std::vector<DemoVariant>& variants, const DemoTask& task, Executor& executor,
                   Measurer& measurer);

}  // namespace hone::app
