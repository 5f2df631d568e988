// SPDX-License-Identifier: Apache-2.0
#include "hone/tune/search/space.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "tests/support/error_of.h"

namespace hone::tune {
namespace {

using test::refusal;
using namespace std::string_literals;

constexpr double kInf = std::numeric_limits<double>::infinity();

Space sample_space() {
  return Space({{"mode", Categorical{{"low rank"s, true, Index{3}, 0.5}}},
                {"rank", IntRange{16, 70, 16, true}},
                {"rate", FloatRange{0, 0.3, 0.1, false}}});
}

TEST(Space, counts_and_lists_points_in_cartesian_order) {
  const Space space = sample_space();
  ASSERT_EQ(space.count(), 4 * 4 * 4);
  EXPECT_EQ(space.levels(1), 4);  // 16, 32, 48, 64
  std::vector<Point> expected;
  for (const Value& mode : {Value("low rank"s), Value(true), Value(Index{3}), Value(0.5)}) {
    for (const Index rank : {16, 32, 48, 64}) {
      for (const double rate : {0.0, 0.1, 0.2, 0.1 * 3}) {
        expected.push_back({{{"mode", mode}, {"rank", rank}, {"rate", std::min(rate, 0.3)}}});
      }
    }
  }
  for (Index i = 0; i < 64; ++i) EXPECT_EQ(space.point(i), expected[static_cast<std::size_t>(i)]);
  EXPECT_NE(refusal([&] { space.point(64); }), "");
  EXPECT_NE(refusal([&] { space.point(-1); }), "");
}

TEST(Space, cannot_count_an_interval_or_too_many_points) {
  EXPECT_FALSE(Space({{"x", FloatRange{0, 1, 0, false}}}).count());
  EXPECT_EQ(Space({{"x", FloatRange{2, 2, 0, false}}}).count(), 1);
  const IntRange wide{0, Index{1} << 40, 1, false};
  EXPECT_FALSE(Space({{"a", wide}, {"b", wide}}).count());
  EXPECT_EQ(Space({{"a", wide}}).count(), (Index{1} << 40) + 1);
}

TEST(Space, reads_what_it_writes) {
  const Space space = sample_space();
  const Json json = parse_json(to_json(space).dump(), "test");
  EXPECT_EQ(to_json(Space::from_json(json)), to_json(space));
  for (Index i = 0; i < *space.count(); ++i) {
    const Point point = space.point(i);
    EXPECT_EQ(space.read_point(parse_json(to_json(point).dump(), "test")), point);
  }
  EXPECT_EQ(std::get<Index>(space.point(0).at("rank")), 16);
  EXPECT_NE(refusal([&] { space.point(0).at("rnak"); }), "");
}

TEST(Space, snaps_floats_to_the_range) {
  const Space space({{"x", FloatRange{0, 1, 0.1, false}}});
  EXPECT_EQ(std::get<double>(space.normalize({{{"x", 0.3}}}).at("x")), 3 * 0.1);
  EXPECT_EQ(std::get<double>(space.read_point({{"x", 1}}).at("x")), 1.0);
  EXPECT_NE(refusal([&] { space.normalize({{{"x", 0.35}}}); }), "");
}

TEST(Space, refuses_bad_parameters) {
  const auto message = [](Parameter parameter) {
    return refusal([&] { Space({std::move(parameter)}); });
  };
  const auto expect = [&](const char* part, Parameter parameter) {
    EXPECT_NE(message(std::move(parameter)).find(part), std::string::npos) << part;
  };
  EXPECT_NE(refusal([] { Space({}); }), "");
  expect("no name", {"", Categorical{{true}}});
  expect("printable", {"a\xff", Categorical{{true}}});
  expect("printable", {"x", Categorical{{"a\nb"s}}});
  expect("no choices", {"x", Categorical{}});
  expect("twice", {"x", Categorical{{1.0, 1.0}}});
  expect("not finite", {"x", Categorical{{std::nan("")}}});
  expect("above its end", {"x", IntRange{3, 2, 1, false}});
  expect("step", {"x", IntRange{1, 2, 0, false}});
  expect("step", {"x", IntRange{1, 2, -1, false}});
  expect("logarithmic", {"x", IntRange{0, 2, 1, true}});
  expect("2^53", {"x", IntRange{std::numeric_limits<Index>::min(), 2, 1, false}});
  expect("2^53", {"x", IntRange{1, std::numeric_limits<Index>::max(), 1, false}});
  expect("above its end", {"x", FloatRange{3, 2, 1, false}});
  expect("step", {"x", FloatRange{1, 2, -1, false}});
  expect("step", {"x", FloatRange{1, 2, std::nan(""), false}});
  expect("finite", {"x", FloatRange{std::nan(""), 2, 0, false}});
  expect("finite", {"x", FloatRange{0, kInf, 0, false}});
  expect("logarithmic", {"x", FloatRange{0, 1, 0, true}});
  expect("logarithmic", {"x", FloatRange{1, 2, 0.5, true}});
  expect("rounding", {"x", FloatRange{1e16, 2e16, 1e-3, false}});
  EXPECT_NE(refusal([] {
              Space({{"x", Categorical{{true}}}, {"x", Categorical{{true}}}});
            }).find("twice"),
            std::string::npos);
}

TEST(Space, refuses_points_outside) {
  const Space space = sample_space();
  const auto message = [&](Value mode, Value rank, Value rate) {
    return refusal([&] { space.normalize({{{"mode", mode}, {"rank", rank}, {"rate", rate}}}); });
  };
  EXPECT_EQ(message(true, Index{16}, 0.1), "");
  EXPECT_NE(message(false, Index{16}, 0.1).find("'mode'"), std::string::npos);
  EXPECT_NE(message(true, Index{17}, 0.1).find("'rank'"), std::string::npos);
  EXPECT_NE(message(true, Index{80}, 0.1).find("'rank'"), std::string::npos);
  EXPECT_NE(message(true, 16.0, 0.1).find("'rank'"), std::string::npos);
  EXPECT_NE(message(true, Index{16}, std::nan("")).find("'rate'"), std::string::npos);
  EXPECT_NE(message(true, Index{16}, 0.4).find("'rate'"), std::string::npos);
  EXPECT_NE(refusal([&] { space.normalize({}); }), "");
  EXPECT_NE(refusal([&] {
              space.normalize({{{"rank", Index{16}}, {"mode", true}, {"rate", 0.1}}});
            }),
            "");
}

TEST(Space, refuses_malformed_json) {
  for (const char* text :
       {R"({})", R"([1])", R"([{"name":"x"}])", R"([{"name":1,"type":"int"}])",
        R"([{"name":"x","type":"real"}])", R"([{"name":"x","type":"categorical"}])",
        R"([{"name":"x","type":"categorical","choices":3}])",
        R"([{"name":"x","type":"categorical","choices":[null]}])",
        R"([{"name":"x","type":"categorical","choices":[true],"low":1}])",
        R"([{"name":"x","type":"int","low":1.5,"high":2,"step":1,"log":false}])",
        R"([{"name":"x","type":"int","low":1,"high":18446744073709551615,"step":1,"log":false}])",
        R"([{"name":"x","type":"int","low":1,"high":2,"step":0,"log":false}])",
        R"([{"name":"x","type":"float","low":1,"high":2,"step":0,"log":1}])",
        R"([{"name":"x","type":"float","low":"1","high":2,"step":0,"log":true}])", R"([])"}) {
    EXPECT_NE(
        refusal([&] { Space::from_json(parse_json(text, "test")); }, ErrorCategory::CorruptFile),
        "")
        << text;
  }
  const Space space = sample_space();
  for (const char* text :
       {"[]", "3", "{}", R"({"mode":true,"rank":16})", R"({"mode":true,"rank":16,"rate":null})",
        R"({"mode":true,"rank":16,"rate":1e99})",
        R"({"mode":true,"rank":18446744073709551615,"rate":0.1})",
        R"({"mode":true,"rank":16,"rate":0.1,"more":1})"}) {
    EXPECT_NE(
        refusal([&] { space.read_point(parse_json(text, "test")); }, ErrorCategory::CorruptFile),
        "")
        << text;
  }
}

}  // namespace
}  // namespace hone::tune
