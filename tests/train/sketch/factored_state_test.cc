// SPDX-License-Identifier: Apache-2.0
// What a factored layer stores, and that nothing which moves its parameters separates them from the
// memory that is multiplied.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <sstream>
#include <string>
#include <vector>

#include "hone/core/file/mmap_file.h"
#include "hone/train/nn/load_weights.h"
#include "hone/train/sketch/factored_linear.h"
#include "hone/train/surgery/slot.h"
#include "hone/train/tensor_file.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"
#include "tests/train/sketch/sketch_checks.h"

namespace hone::nn {
namespace {

using hone::test::refusal;
using test::PerTerm;
using test::relative;
using test::seeded_layer;
using test::seeded_normal;
using torch::Tensor;

FactoredLinearOptions sketched_options(Index in, Index out, Index terms, Index low_rank) {
  FactoredLinearOptions options;
  options.in_features = in;
  options.out_features = out;
  options.rank = 2 * terms * low_rank;
  options.terms = terms;
  options.seed = 0xfedcba9876543210u;
  return options;
}

// Whether the layer multiplies by its parameters as they are now.
double misfit(FactoredLinearImpl& layer) {
  const Tensor x = seeded_normal({5, layer.options().in_features}, 77);
  const at::NoGradGuard no_grad;
  const Tensor y = layer.forward(x.to(layer.first()));
  return relative(y, PerTerm::of(layer).forward(x));
}

TEST(FactoredState, follows_its_parameters_through_conversions_steps_and_copies) {
  FactoredLinear layer = seeded_layer(sketched_options(40, 30, 2, 3), 1);
  EXPECT_LE(misfit(*layer), 1e-13);
  layer->to(at::kFloat);
  EXPECT_LE(misfit(*layer), 1e-6);
  layer->to(at::kBFloat16);
  EXPECT_LE(misfit(*layer), 2e-2);
  layer->to(at::kDouble);
  EXPECT_LE(misfit(*layer), 1e-13) << "the signs are those of the seed in f64 again";

  const void* memory = layer->first().data_ptr();
  torch::optim::SGD sgd(layer->parameters(), 0.1);
  layer->forward(seeded_normal({4, 40}, 3)).pow(2).mean().backward();
  sgd.step();
  EXPECT_LE(misfit(*layer), 1e-13);
  EXPECT_EQ(layer->first().data_ptr(), memory) << "a step needs no new memory";
  {
    const at::NoGradGuard no_grad;
    Tensor(layer->second()).set_data(seeded_normal({6, 30}, 5));
  }
  EXPECT_LE(misfit(*layer), 1e-13);
}

TEST(FactoredState, is_copied_by_value) {
  FactoredLinear layer = seeded_layer(sketched_options(40, 30, 2, 3), 1);
  Tensor(layer->second()).set_requires_grad(false);
  layer->eval();
  const auto copy = std::dynamic_pointer_cast<FactoredLinearImpl>(layer->clone());
  ASSERT_NE(copy, nullptr);
  EXPECT_FALSE(copy->is_training());
  EXPECT_FALSE(copy->second().requires_grad());
  EXPECT_TRUE(copy->first().requires_grad());
  const Tensor before = layer->effective_weight();
  EXPECT_TRUE(at::equal(copy->effective_weight(), before));
  {
    const at::NoGradGuard no_grad;
    Tensor(copy->first()).mul_(2);
  }
  EXPECT_TRUE(at::equal(layer->effective_weight(), before));
  EXPECT_FALSE(at::equal(copy->effective_weight(), before));
}

struct ParentImpl : torch::nn::Cloneable<ParentImpl> {
  ParentImpl() { reset(); }
  void reset() override {
    inner = register_module("inner", FactoredLinear(sketched_options(40, 30, 1, 3)));
  }
  FactoredLinear inner{nullptr};
};

TEST(FactoredState, is_copied_with_a_parent) {
  const auto parent = std::make_shared<ParentImpl>();
  {
    const at::NoGradGuard no_grad;
    Tensor(parent->inner->first()).fill_(0.5);
  }
  const auto copy = std::dynamic_pointer_cast<ParentImpl>(parent->clone());
  EXPECT_TRUE(at::equal(copy->inner->effective_weight(), parent->inner->effective_weight()));
  EXPECT_NE(copy->inner->first().data_ptr(), parent->inner->first().data_ptr());
  EXPECT_EQ(copy->named_parameters()["inner.s1"].data_ptr(), copy->inner->first().data_ptr());
  EXPECT_LE(misfit(*copy->inner), 1e-6);
}

TEST(FactoredState, saves_the_seed_instead_of_the_signs) {
  const FactoredLinearOptions options = sketched_options(300, 200, 2, 8);
  FactoredLinear layer = seeded_layer(options, 1), other = seeded_layer(options, 50);
  layer->to(at::kFloat);
  other->to(at::kFloat);
  const hone::test::TemporaryFolder folder;
  const auto path = folder.path() / "layer.safetensors";
  std::vector<NamedTensor> tensors;
  for (const auto& item : layer->named_parameters()) tensors.push_back({item.key(), item.value()});
  for (const auto& item : layer->named_buffers()) tensors.push_back({item.key(), item.value()});
  write_tensors(path, tensors);
  const auto bytes = static_cast<double>(std::filesystem::file_size(path));
  const LayerFacts facts = layer->facts();
  EXPECT_LT(bytes, 1.05 * 4 * static_cast<double>(facts.trainable));
  EXPECT_EQ(facts.stored_bytes, 4 * facts.trainable + 16);
  {
    const at::NoGradGuard no_grad;
    for (const auto& item : other->named_buffers()) item->zero_();
    // A recipe of other signs, as of a layer that was built with another seed.
    for (const auto& item : other->named_buffers()) {
      item->copy_(SketchRecipe{1, 2, 8}.to_bytes());
    }
  }
  EXPECT_FALSE(at::equal(other->effective_weight(), layer->effective_weight()));
  EXPECT_TRUE(load_weights(*other, path, {.strict = true}).is_complete());
  EXPECT_TRUE(at::equal(other->effective_weight(), layer->effective_weight()));
  EXPECT_EQ(other->options().seed, options.seed);
}

TEST(FactoredState, does_not_load_strictly_without_the_recipe) {
  FactoredLinear layer(sketched_options(30, 20, 1, 4));
  const hone::test::TemporaryFolder folder;
  const auto path = folder.path() / "parameters.safetensors";
  write_tensors(path, parameters_by_path(*layer));
  FactoredLinearOptions options = sketched_options(30, 20, 1, 4);
  options.seed = 77;
  FactoredLinear other(options);
  const Tensor before = other->first().clone();
  EXPECT_THAT(hone::test::refusal([&] { load_weights(*other, path, {.strict = true}); }),
              testing::HasSubstr("missing: sketch"));
  EXPECT_TRUE(other->first().equal(before));
  const LoadedWeights loaded = load_weights(*other, path);
  EXPECT_THAT(loaded.missing, testing::ElementsAre("sketch"));
  EXPECT_FALSE(loaded.is_complete());
  EXPECT_TRUE(load_weights(*other, path, {.strict = true, .has_recipes = true}).is_complete());
}

TEST(FactoredState, survives_an_archive_that_has_only_the_trained_rows) {
  FactoredLinearOptions options = sketched_options(300, 200, 2, 8);
  FactoredLinear layer = seeded_layer(options, 1);
  std::stringstream stream;
  torch::save(layer, stream);
  EXPECT_LT(static_cast<double>(stream.str().size()),
            1.1 * static_cast<double>(layer->facts().stored_bytes) + 4096);
  options.seed = 3;
  FactoredLinear other = seeded_layer(options, 50);
  torch::load(other, stream);
  EXPECT_TRUE(at::equal(other->effective_weight(), layer->effective_weight()));
  EXPECT_LE(misfit(*other), 1e-13);
}

TEST(FactoredState, works_without_gradients_after_a_conversion_in_inference_mode) {
  FactoredLinear layer = seeded_layer(sketched_options(40, 30, 1, 4), 1);
  const Tensor x = seeded_normal({3, 40}, 2);
  const Tensor want = layer->forward(x).detach();
  {
    const c10::InferenceMode inference;
    EXPECT_TRUE(at::equal(layer->forward(x), want));
  }
  layer->forward(x).sum().backward();
  EXPECT_TRUE(layer->first().grad().defined());
}

TEST(FactoredState, refuses_a_recipe_of_another_width_or_of_no_bytes) {
  FactoredLinear layer = seeded_layer(sketched_options(40, 30, 2, 3), 1);
  const at::NoGradGuard no_grad;
  const Tensor sketch = layer->named_buffers()["sketch"];
  const Tensor x = seeded_normal({3, 40}, 2);
  sketch.copy_(SketchRecipe{1, 2, 4}.to_bytes());
  EXPECT_NE(refusal([&] { layer->forward(x); }).find("6 rows"), std::string::npos);
  sketch.zero_();
  EXPECT_NE(refusal([&] { layer->forward(x); }).find("[1, 2^30]"), std::string::npos);
  EXPECT_NE(refusal([&] { SketchRecipe::from_bytes(at::full({16}, 0.5)); }), "");
  EXPECT_NE(refusal([&] { SketchRecipe::from_bytes(at::zeros({3})); }), "");
  sketch.copy_(SketchRecipe{1, 3, 2}.to_bytes());
  EXPECT_LE(misfit(*layer), 1e-13) << "other terms of the same width";
}

TEST(SketchRecipe, is_the_same_after_its_bytes_were_converted) {
  const SketchRecipe recipe{0xfedcba9876543210u, 3, 70'000};
  for (const at::ScalarType type : {at::kByte, at::kHalf, at::kBFloat16, at::kFloat}) {
    EXPECT_EQ(SketchRecipe::from_bytes(recipe.to_bytes().to(type)), recipe);
  }
}

TEST(SketchSigns, are_packed_into_bits_and_back) {
  for (const Index count : {1, 8, 13}) {
    const Tensor signs = draw_signs({5, 0, 1, count}, 0.25, at::kFloat).view({-1});
    EXPECT_TRUE(at::equal(signs.abs(), at::full({count}, 0.25)));
    EXPECT_TRUE(at::equal(unpack_signs(pack_signs(signs), count) * 0.25, signs));
  }
  EXPECT_NE(refusal([] { unpack_signs(at::zeros({3}, at::kByte), 8); }), "");
}

TEST(LayerFacts, count_what_is_trained_stored_and_computed) {
  const FactoredLinearOptions options = sketched_options(96, 64, 1, 16);
  FactoredLinear layer = seeded_layer(options, 1);
  layer->to(at::kFloat);
  LayerFacts facts = layer->facts();
  EXPECT_EQ(facts.trainable, 16 * (96 + 64) + 64);
  EXPECT_EQ(facts.stored_bytes, 4 * facts.trainable + 16 * 1);
  EXPECT_EQ(facts.resident_bytes, 4 * (32 * (96 + 64) + 64) + 16);
  EXPECT_EQ(facts.forward_flops, 4 * 16 * (96 + 64));
  EXPECT_EQ(facts.backward_flops, 6 * 16 * (96 + 64));
  EXPECT_DOUBLE_EQ(facts.break_even, 32 * 160.0 / (96 * 64));
  FactoredLinearOptions both = options;
  both.mode = FactorMode::LowRank;
  both.rank = 20;
  FactoredLinear low_rank = seeded_layer(both, 1);
  facts = low_rank->facts();
  EXPECT_EQ(facts.trainable, 20 * (96 + 64) + 64);
  EXPECT_EQ(facts.stored_bytes, 8 * facts.trainable);
  EXPECT_EQ(facts.resident_bytes, 8 * (32 * (96 + 64) + 64)) << "the rank is padded to 32";
  EXPECT_EQ(facts.forward_flops, 2 * 20 * (96 + 64));
  EXPECT_EQ(facts.backward_flops, 4 * 20 * (96 + 64));
}

TEST(LayerFacts, warn_once_for_a_layer_that_has_more_numbers_than_the_dense_one) {
  std::vector<std::string> warnings;
  const LayerWarning before =
      set_layer_warning([&](std::string_view text) { warnings.emplace_back(text); });
  FactoredLinear equal = seeded_layer(sketched_options(96, 48, 1, 16), 1);  // 32 * 144 = 96 * 48
  EXPECT_EQ(warnings.size(), 0u);
  FactoredLinear past = seeded_layer(sketched_options(32, 16, 1, 16), 1);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("1536"), std::string::npos) << warnings[0];
  past->forward(seeded_normal({2, 32}, 1));
  past->to(at::kFloat);
  past->forward(seeded_normal({2, 32}, 1, at::kFloat));
  past->clone();
  EXPECT_EQ(warnings.size(), 1u);
  set_layer_warning(before);
}

}  // namespace
}  // namespace hone::nn
