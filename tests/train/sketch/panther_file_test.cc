// SPDX-License-Identifier: Apache-2.0
// Layers in Panther's layout: the forward pass of its published formula, and back.
#include "hone/train/sketch/panther_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/error_of.h"
#include "tests/support/test_data.h"
#include "tests/train/sketch/sketch_checks.h"

namespace hone::nn {
namespace {

using hone::test::refusal;
using hone::test::TemporaryFolder;
using test::relative;
using test::seeded_normal;
using torch::Tensor;

constexpr Index kPantherTerms = 3, kPantherLowRank = 4, kPantherIn = 26, kPantherOut = 21;

Tensor scaled_signs(at::IntArrayRef sizes, std::uint64_t seed) {
  return at::where(seeded_normal(sizes, seed) < 0, -1.0, 1.0).to(at::kDouble) / 2.0;
}
std::vector<NamedTensor> linear_tensors() {
  return {{"net.S1s", seeded_normal({kPantherTerms, kPantherIn, kPantherLowRank}, 1)},
          {"net.S2s", seeded_normal({kPantherTerms, kPantherLowRank, kPantherOut}, 2)},
          {"net.U1s", scaled_signs({kPantherTerms, kPantherLowRank, kPantherOut}, 3)},
          {"net.U2s", scaled_signs({kPantherTerms, kPantherIn, kPantherLowRank}, 4)},
          {"net.bias", seeded_normal({kPantherOut}, 5)}};
}
std::vector<NamedTensor> conv_tensors() {
  return {{"S1s", seeded_normal({2 * kPantherTerms * kPantherLowRank, 5, 3, 3}, 1)},
          {"U1s", scaled_signs({2 * kPantherTerms, kPantherLowRank, kPantherOut}, 2)},
          {"bias", seeded_normal({kPantherOut}, 3)}};
}

void expect_equal(const std::vector<NamedTensor>& got, const std::vector<NamedTensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].name, want[i].name);
    EXPECT_TRUE(at::equal(got[i].value, want[i].value)) << want[i].name;
  }
}

TEST(PantherFile, is_read_as_the_published_formula_and_written_as_it_was) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "layer.safetensors";
  const auto tensors = linear_tensors();
  write_tensors(file, tensors);
  FactoredLinear layer = read_panther_linear(file, "net.");
  const test::PerTerm formula{tensors[0].value, tensors[1].value, tensors[2].value,
                              tensors[3].value, tensors[4].value};
  const Tensor x = seeded_normal({6, kPantherIn}, 7);
  EXPECT_LE(relative(layer->forward(x), formula.forward(x)), 1e-12);
  expect_equal(panther_tensors(*layer, "net."), tensors);
  layer->to(at::kFloat);
  EXPECT_LE(relative(layer->forward(x.to(at::kFloat)), formula.forward(x)), 1e-5);
  layer->to(at::kBFloat16);
  layer->to(at::kDouble);
  const auto copy = std::dynamic_pointer_cast<FactoredLinearImpl>(layer->clone());
  EXPECT_TRUE(at::equal(copy->fixed_signs().second, layer->fixed_signs().second));
  EXPECT_TRUE(at::equal(panther_tensors(*copy, "")[3].value, tensors[3].value));
}

TEST(PantherFile, keeps_the_signs_as_bits) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "layer.safetensors";
  write_tensors(file, linear_tensors());
  FactoredLinear layer = read_panther_linear(file, "net.");
  const Index signs = kPantherTerms * kPantherLowRank * (kPantherIn + kPantherOut);
  EXPECT_EQ(layer->facts().stored_bytes, 8 * layer->facts().trainable + 16 + (signs + 7) / 8);
}

TEST(PantherFile, has_the_layout_for_layers_of_a_seed_too) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "layer.safetensors";
  FactoredLinearOptions options;
  options.in_features = kPantherIn;
  options.out_features = kPantherOut;
  options.rank = 12;
  options.terms = 2;
  options.bias = false;
  FactoredLinear layer = test::seeded_layer(options, 9);
  write_tensors(file, panther_tensors(*layer, ""));
  FactoredLinear read = read_panther_linear(file, "");
  EXPECT_FALSE(read->bias().defined());
  EXPECT_EQ(read->options().terms, 2);
  EXPECT_LE(relative(read->effective_weight(), layer->effective_weight()), 1e-14);
}

TEST(PantherFile, is_read_as_a_convolution_of_the_given_geometry) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "layer.safetensors";
  const auto tensors = conv_tensors();
  write_tensors(file, tensors);
  SketchedConv2dOptions geometry;
  geometry.stride = {2, 1};
  geometry.padding = {1, 0};
  SketchedConv2d layer = read_panther_conv(file, "", geometry);
  const Tensor u = tensors[1].value.reshape({-1, kPantherOut});
  const Tensor kernel = at::einsum("so,sihw->oihw", {u, tensors[0].value}) /
                        (2.0 * static_cast<double>(kPantherTerms));
  const Tensor x = seeded_normal({2, 5, 9, 8}, 7);
  const Tensor want = at::conv2d(x, kernel, tensors[2].value, {2, 1}, {1, 0});
  EXPECT_LE(relative(layer->forward(x), want), 1e-12);
  expect_equal(panther_tensors(*layer, ""), tensors);
}

std::string refusal_of(std::vector<NamedTensor> tensors, bool is_conv) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "layer.safetensors";
  write_tensors(file, tensors);
  return refusal(
      [&] {
        if (is_conv) {
          read_panther_conv(file, "", {});
        } else {
          read_panther_linear(file, "net.");
        }
      },
      ErrorCategory::CorruptFile);
}

TEST(PantherFile, is_refused_by_file_and_tensor) {
  for (std::size_t i = 0; i < 4; ++i) {
    auto missing = linear_tensors();
    const std::string name = missing[i].name;
    missing.erase(missing.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_NE(refusal_of(missing, false).find(name), std::string::npos);
    auto longer = linear_tensors();
    longer[i].value = at::cat({longer[i].value, longer[i].value}, 1);
    EXPECT_NE(refusal_of(longer, false).find("layer.safetensors"), std::string::npos);
    auto broken = linear_tensors();
    broken[i].value.view(-1)[3] = std::numeric_limits<double>::infinity();
    EXPECT_NE(refusal_of(broken, false).find("finite"), std::string::npos);
    auto integers = linear_tensors();
    integers[i].value = integers[i].value.to(at::kLong);
    EXPECT_NE(refusal_of(integers, false).find(name), std::string::npos);
  }
  auto scaled = linear_tensors();
  scaled[2].value = scaled[2].value * 2;
  EXPECT_NE(refusal_of(scaled, false).find("net.U1s"), std::string::npos);
  auto odd = conv_tensors();
  odd[1].value = scaled_signs({3, kPantherLowRank, kPantherOut}, 2);
  odd[0].value = seeded_normal({3 * kPantherLowRank, 5, 3, 3}, 1);
  EXPECT_NE(refusal_of(odd, true).find("even"), std::string::npos);
  auto flat = conv_tensors();
  flat[0].value = flat[0].value.flatten(1);
  EXPECT_NE(refusal_of(flat, true).find("S1s"), std::string::npos);
  EXPECT_NE(refusal([] { read_panther_linear("/nonexistent/x.safetensors", ""); },
                    ErrorCategory::NotFound),
            "");
}

TEST(PantherFile, is_not_written_for_layers_without_fixed_signs_or_in_groups) {
  FactoredLinearOptions options;
  options.in_features = options.out_features = 20;
  options.rank = 4;
  options.mode = FactorMode::LowRank;
  FactoredLinear layer = test::seeded_layer(options, 9);
  EXPECT_NE(refusal([&] { panther_tensors(*layer, ""); }).find("fixed signs"), std::string::npos);
  SketchedConv2dOptions groups;
  groups.in_channels = groups.out_channels = 16;
  groups.groups = 2;
  groups.rank = 4;
  groups.terms = 1;
  const SketchedConv2d conv(groups);
  EXPECT_NE(refusal([&] { panther_tensors(*conv, ""); }).find("group"), std::string::npos);
}

}  // namespace
}  // namespace hone::nn
