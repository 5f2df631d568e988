// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/sampling_choice.h"

#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace hone::infer {
namespace {

TEST(ResolveSampling, choice_beats_the_models_default_beats_ours) {
  const Json defaults = {{"temperature", 0.6}, {"top_k", 20}, {"do_sample", true}};
  const auto resolved = resolve_sampling({}, {.temperature = 0.1f}, defaults);
  EXPECT_FLOAT_EQ(resolved.temperature, 0.1f);
  EXPECT_EQ(resolved.top_k, 20);
  EXPECT_EQ(resolved.top_p, 1);
  EXPECT_EQ(resolve_sampling({}, {}, {{"do_sample", false}, {"temperature", 0.6}}).temperature, 0);
  EXPECT_EQ(resolve_sampling({}, {}, Json::object()).temperature, 1);
}

TEST(ResolveSampling, other_types_are_ignored_and_a_whole_number_may_be_written_as_a_float) {
  const Json defaults = {{"top_k", 40.0}, {"top_p", "0.5"}, {"min_p", nullptr}};
  const auto resolved = resolve_sampling({}, {}, defaults);
  EXPECT_EQ(resolved.top_k, 40);
  EXPECT_EQ(resolved.top_p, 1);
  EXPECT_EQ(resolved.min_p, 0);
}

TEST(ResolveSampling, a_default_beyond_its_type_is_named) {
  for (const Json& bad : {Json(1e300), Json(2.5), Json(-1e300), Json(18446744073709551615u)}) {
    const std::string error = hone::test::error_of([&] {
      resolve_sampling({}, {}, {{"top_k", bad}});
    });
    EXPECT_NE(error.find("top_k"), std::string::npos) << bad;
  }
  EXPECT_NE(hone::test::error_of([] {
              resolve_sampling({}, {}, {{"temperature", 1e300}});
            }).find("temperature"),
            std::string::npos);
}

}  // namespace
}  // namespace hone::infer
