// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/sampling_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <type_traits>

#include "hone/core/check.h"

namespace hone::infer {
namespace {

constexpr std::string_view kFile = "generation_config.json";

// Throws Error{CorruptFile} where validate() would refuse this value.
template <class T>
void check_default(const char* key, T SamplingParams::*member, T value) {
  SamplingParams alone;
  alone.*member = value;
  try {
    validate(alone, std::numeric_limits<Index>::max());
  } catch (const Error& error) {
    const std::string_view text = error.what();
    fail_corrupt(concat(kFile, ": ", key), text.substr(std::min(text.size(), text.find(' ') + 1)));
  }
}

template <class T>
void take(const std::optional<T>& choice, const Json& defaults, const char* key,
          T SamplingParams::*member, SamplingParams& sampling) {
  T& value = sampling.*member;
  if (choice) {
    value = *choice;
    return;
  }
  const auto found = defaults.find(key);
  if (found == defaults.end() || !found->is_number()) return;
  const auto number = found->template get<double>();
  const double largest = std::is_integral_v<T> ? 0x1p53 : std::numeric_limits<float>::max();
  if (!(std::abs(number) <= largest) || (std::is_integral_v<T> && number != std::floor(number))) {
    fail_corrupt(kFile, concat("a ", std::is_integral_v<T> ? "whole " : "", "number for ", key),
                 found->dump());
  }
  value = static_cast<T>(number);
  check_default(key, member, value);
}

}  // namespace

SamplingParams resolve_sampling(SamplingParams sampling, const SamplingChoice& choice,
                                const Json& generation_defaults) {
  const auto do_sample = generation_defaults.find("do_sample");
  if (do_sample != generation_defaults.end() && do_sample->is_boolean() &&
      !do_sample->get<bool>()) {
    sampling.temperature = choice.temperature.value_or(0);
  } else {
    take(choice.temperature, generation_defaults, "temperature", &SamplingParams::temperature,
         sampling);
  }
  take(choice.top_p, generation_defaults, "top_p", &SamplingParams::top_p, sampling);
  take(choice.min_p, generation_defaults, "min_p", &SamplingParams::min_p, sampling);
  take(choice.top_k, generation_defaults, "top_k", &SamplingParams::top_k, sampling);
  take(choice.repetition_penalty, generation_defaults, "repetition_penalty",
       &SamplingParams::repetition_penalty, sampling);
  return sampling;
}

}  // namespace hone::infer
