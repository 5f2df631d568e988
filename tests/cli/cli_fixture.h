// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/text/load_tokenizer.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/program.h"
#include "tests/support/test_data.h"

namespace hone::test {

using Arguments = std::vector<std::string>;

inline Arguments hone_argv(Arguments arguments) {
  arguments.insert(arguments.begin(), HONE_PROGRAM);
  return arguments;
}

inline ProgramResult run_hone(Arguments arguments) {
  return Program(hone_argv(std::move(arguments))).wait();
}

// Whether the build has the commands that need LibTorch.
inline bool has_libtorch() {
  return std::filesystem::exists(std::filesystem::path(HONE_PROGRAM).parent_path() / "hone-torch");
}

inline Arguments operator+(Arguments left, const Arguments& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// Nothing on stdout, one line of error with this text on stderr, this exit status. Returns the
// line.
inline std::string expect_refusal(const Arguments& arguments, int status,
                                  const std::string& text = "") {
  std::string line;
  for (const std::string& argument : arguments) line += " " + argument.substr(0, 80);
  SCOPED_TRACE(line);
  const ProgramResult result = run_hone(arguments);
  EXPECT_EQ(result.status, status) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(result.err.starts_with("hone: ")) << result.err;
  EXPECT_THAT(result.err, testing::HasSubstr(text));
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  EXPECT_LT(result.err.size(), 600u) << result.err;
  return result.err;
}

// Ends well; the one JSON document on stdout.
inline Json json_of(const Arguments& arguments) {
  const ProgramResult result = run_hone(arguments + Arguments{"--json"});
  EXPECT_EQ(result.status, 0) << result.err;
  return parse_json(result.out, "stdout");
}

// A folder for the test, with a tiny model that has a tokenizer as hf/ where it asks for one.
class Cli : public testing::Test {
 protected:
  std::string path(std::string_view name) const { return (folder_.path() / name).string(); }
  std::string write_tiny_model() const {
    const auto tokenizer = text::make_tokenizer(tiny_sentencepiece(48));
    const TinyModel model(tiny_architecture());
    write_hugging_face(path("hf"), model.source(tokenizer.get()));
    return path("hf");
  }
  TemporaryFolder folder_;
};

}  // namespace hone::test
