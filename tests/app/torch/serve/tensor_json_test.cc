// SPDX-License-Identifier: Apache-2.0
// Tensors of requests and answers, right and wrong.
#include "hone/app/torch/serve/tensor_json.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "hone/server/api/api_error.h"

namespace hone::app {
namespace {

using testing::HasSubstr;
using torch::Tensor;

Tensor read(const char* text) { return read_tensor(parse_json(text, "test"), "inputs[0]"); }

std::string refusal(const std::string& text) {
  try {
    read_tensor(parse_json(text, "test"), "inputs[0]");
  } catch (const server::ApiError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.what();
  }
  return "none";
}

TEST(TensorJson, reads_nested_arrays_as_f32_or_the_type_that_is_named) {
  EXPECT_TRUE(at::equal(read("[[1, 2.5], [-3, 4e2]]"),
                        at::tensor({1.0F, 2.5F, -3.0F, 400.0F}).reshape({2, 2})));
  EXPECT_TRUE(at::equal(read("7"), at::scalar_tensor(7, at::kFloat)));
  const Tensor ids = read(R"({"dtype": "i64", "data": [9007199254740993, -1]})");
  EXPECT_EQ(ids.scalar_type(), at::kLong);
  EXPECT_EQ(ids[0].item<std::int64_t>(), 9007199254740993) << "not by way of a double";
  EXPECT_TRUE(at::equal(read(R"({"dtype": "bool", "data": [true, false, 1]})"),
                        at::tensor({1, 0, 1}).to(at::kBool)));
  const Tensor flat = read(R"({"dtype": "f64", "data": [1, 2, 3, 4, 5, 6], "shape": [3, 2]})");
  EXPECT_TRUE(at::equal(flat, at::arange(1, 7, at::kDouble).reshape({3, 2})));
}

TEST(TensorJson, keeps_every_bit_of_every_type_in_base64) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong,
                                    at::kInt, at::kShort, at::kChar, at::kByte, at::kBool}) {
    torch::manual_seed(3);
    const Tensor values = at::randint(0, 2, {2, 3, 4}, at::kLong).to(type);
    const Json json = tensor_json(values, /*is_base64=*/true);
    const Tensor again = read_tensor(json, "x");
    EXPECT_EQ(again.scalar_type(), type);
    EXPECT_TRUE(at::equal(again, values)) << type;
    const Json arrays = tensor_json(values, /*is_base64=*/false);
    EXPECT_TRUE(at::equal(read_tensor({{"dtype", json["dtype"]}, {"data", arrays}}, "x"), values));
  }
  // By Python's struct.pack("<3f", 1, -2.5, inf).
  const Tensor floats = read(R"({"shape": [3], "b64": "AACAPwAAIMAAAIB/"})");
  EXPECT_EQ(floats[1].item<float>(), -2.5F);
  EXPECT_TRUE(at::isinf(floats[2]).item<bool>());
  EXPECT_TRUE(tensor_json(floats, false)[2].dump() == "null");
  // A bool is 0 or 1, whatever the bytes are.
  EXPECT_TRUE(at::equal(read(R"({"dtype": "bool", "shape": [3], "b64": "AAL/"})"),
                        at::tensor({0, 1, 1}).to(at::kBool)));
}

TEST(TensorJson, names_what_is_no_tensor) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\"text\"", "nested arrays"},
      {"null", "null"},
      {"[]", "an empty one"},
      {"[[1, 2], [3]]", "same length"},
      {"[[1, 2], 3]", "same length"},
      {"[1, [2]]", "numbers"},
      {"[1, \"2\"]", "numbers"},
      {"[1, null]", "numbers"},
      {"[[[[[[[[[1]]]]]]]]]", "8 dimensions"},
      {"[1e300]", "f32"},
      {"{}", "data or b64"},
      {R"({"dtype": "f8", "data": [1]})", "another type"},
      {R"({"dtype": "u8", "data": [256]})", "u8"},
      {R"({"dtype": "i8", "data": [-129]})", "i8"},
      {R"({"dtype": "i64", "data": [1.5]})", "whole"},
      {R"({"dtype": "i64", "data": [18446744073709551615]})", "whole"},
      {R"({"data": [1, 2], "shape": [3]})", "[2]"},
      {R"({"data": [[1, 2], [3, 4]], "shape": [4]})", "[2, 2]"},
      {R"({"data": [1], "b64": "AACAPw==", "shape": [1]})", "both"},
      {R"({"data": [1], "type": "f32"})", "only"},
      {R"({"data": [1, 2], "shape": "2"})", "sizes"},
      {R"({"b64": "AACAPw=="})", "sizes"},
      {R"({"b64": "AACAPw==", "shape": [2]})", "bytes"},
      {R"({"b64": "AACAPw==", "shape": [0]})", "sizes"},
      {R"({"b64": "AACAPw==", "shape": [-1]})", "sizes"},
      {R"({"b64": "AACA", "shape": [1]})", "bytes"},
      {R"({"b64": "AACAPwA=", "shape": [1]})", "bytes"},
      {R"({"b64": "?", "shape": [1]})", "base64"},
      {R"({"b64": "", "shape": [65536, 65536, 65536, 65536, 65536]})", "bytes"},
      {R"({"b64": "", "shape": [1, 1, 1, 1, 1, 1, 1, 1, 1]})", "sizes"}};
  for (const auto& [text, word] : cases) {
    EXPECT_THAT(refusal(text), HasSubstr(word)) << text;
    EXPECT_THAT(refusal(text), HasSubstr("inputs[0]")) << text;
  }
}

}  // namespace
}  // namespace hone::app
