// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/sampling_choice.h"

#include <cmath>
#include <limits>
#include <type_traits>

#include "hone/core/check.h"

namespace hone::infer {
namespace {

template <class T>
void take(const std::optional<T>& choice, const Json& defaults, const char* key, T& value) {
  if (choice) {
    value = *choice;
    return;
  }
  const auto found = defaults.find(key);
  if (found == defaults.end() || !found->is_number()) return;
  const auto number = found->template get<double>();
  const double largest = std::is_integral_v<T> ? 0x1p53 : std::numeric_limits<float>::max();
  if (!(std::abs(number) <= largest) || (std::is_integral_v<T> && number != std::floor(number))) {
    fail_corrupt("generation_config.json",
                 concat("a ", std::is_integral_v<T> ? "whole " : "", "number for ", key),
                 found->dump());
  }
  value = static_cast<T>(number);
}

}  // namespace

SamplingParams resolve_sampling(SamplingParams sampling, const SamplingChoice& choice,
                                const Json& generation_defaults) {
  const auto do_sample = generation_defaults.find("do_sample");
  if (do_sample != generation_defaults.end() && do_sample->is_boolean() &&
      !do_sample->get<bool>()) {
    sampling.temperature = choice.temperature.value_or(0);
  } else {
    take(choice.temperature, generation_defaults, "temperature", sampling.temperature);
  }
  take(choice.top_p, generation_defaults, "top_p", sampling.top_p);
  take(choice.min_p, generation_defaults, "min_p", sampling.min_p);
  take(choice.top_k, generation_defaults, "top_k", sampling.top_k);
  take(choice.repetition_penalty, generation_defaults, "repetition_penalty",
       sampling.repetition_penalty);
  return sampling;
}

}  // namespace hone::infer
