// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/metadata/front_matter.h"

#include <gtest/gtest.h>

#include <string>

#include "hone/core/check.h"
#include "tests/support/error_of.h"

namespace hone::model_io {
namespace {

Json read(const std::string& yaml) {
  return read_front_matter("---\n" + yaml + "---\n\n# Title\n", "README.md");
}

// The values are those that PyYAML reads, as strings.
TEST(FrontMatter, has_scalars_of_every_style_as_strings) {
  const Json front = read(
      "license: apache-2.0\nversion: 1.10\ngated: yes\n'single': 'it''s'\ndouble: \"a\\tb "
      "\\u00e9\"\n"
      "folded: >-\n  one\n  two\nliteral: |\n  a\n  b\nnothing:\nnull_too: ~\nquoted: 'null' # "
      "no\n");
  EXPECT_EQ(front, Json({{"license", "apache-2.0"},
                         {"version", "1.10"},
                         {"gated", "yes"},
                         {"single", "it's"},
                         {"double", "a\tb \u00e9"},
                         {"folded", "one two"},
                         {"literal", "a\nb\n"},
                         {"nothing", nullptr},
                         {"null_too", nullptr},
                         {"quoted", "null"}}));
}

TEST(FrontMatter, has_lists_and_mappings_of_both_styles) {
  EXPECT_EQ(read("a: [x, 'y']\nb:\n- 1\n- c: {d: e}\n").dump(),
            R"({"a":["x","y"],"b":["1",{"c":{"d":"e"}}]})");
}

TEST(FrontMatter, is_empty_without_two_fences) {
  for (const char* text :
       {"", "# Title\n", "---\nlicense: mit\n", "text\n---\nlicense: mit\n---\n"})
    EXPECT_EQ(read_front_matter(text, "README.md"), Json::object()) << text;
  EXPECT_EQ(read_front_matter("---\r\nlicense: mit\r\n---\r\n", "README.md"),
            Json({{"license", "mit"}}));
}

TEST(FrontMatter, that_is_broken_or_hostile_is_empty) {
  std::string deep(5000, '['), wide = "a:\n", bomb = "a0: &a0 [x, x]\n";
  for (int i = 0; i < 30'000; ++i) wide += "- x\n";
  for (int i = 1; i < 60; ++i)
    bomb += concat("a", i, ": &a", i, " [*a", i - 1, ", *a", i - 1, "]\n");
  const std::string self = "a: &a [*a]\n";
  for (const std::string& yaml :
       {std::string("a: [1\n"), std::string("- a\n"), std::string("\t: x\n"), "a: " + deep + "\n",
        std::string("a: \x01\n"), std::string("a: \xff\n"), wide})
    EXPECT_EQ(read(yaml), Json::object()) << yaml.substr(0, 40);
  EXPECT_EQ(read(bomb)["a59"].dump(), "[null,null]");
  EXPECT_EQ(read(self).dump(), R"({"a":[null]})");
  EXPECT_EQ(read("license: mit\nlicense: other\n").find("license")->get<std::string>(), "mit");
}

}  // namespace
}  // namespace hone::model_io
