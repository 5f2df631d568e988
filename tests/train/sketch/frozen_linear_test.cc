// SPDX-License-Identifier: Apache-2.0
// Frozen layers against the layer that they were frozen from.
#include "hone/train/sketch/frozen_linear.h"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "hone/core/file/mmap_file.h"
#include "hone/train/nn/load_weights.h"
#include "hone/train/tensor_file.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"
#include "tests/train/sketch/sketch_checks.h"

namespace hone::nn {
namespace {

using hone::test::refusal;
using test::relative;
using test::seeded_normal;
using torch::Tensor;

FactoredLinear layer_of(Index in, Index out, Index rank, FactorMode mode, bool bias) {
  FactoredLinearOptions options;
  options.in_features = in;
  options.out_features = out;
  options.rank = rank;
  options.mode = mode;
  options.bias = bias;
  options.epilogue = {Activation::GeluTanh, 0.5};
  FactoredLinear layer = test::seeded_layer(options, 1);
  layer->eval();
  return layer;
}

double bound_of(FrozenType type) {
  return type == FrozenType::Float32 ? 1e-5 : type == FrozenType::BFloat16 ? 5e-3 : 1e-2;
}
constexpr FrozenType kTypes[] = {FrozenType::Float32, FrozenType::BFloat16, FrozenType::Int8};

// The layer of the decoded factors.
Tensor decoded_forward(FrozenLinearImpl& frozen, const Tensor& x) {
  const auto [a, b] = frozen.factors();
  const Tensor z = at::linear(at::linear(x, a.to(at::kDouble)), b.to(at::kDouble));
  return at::gelu(frozen.bias().defined() ? z + frozen.bias() : z, "tanh");
}

TEST(FrozenLinear, is_near_the_layer_that_was_frozen) {
  for (const FrozenType type : kTypes) {
    for (const FactorMode mode : {FactorMode::Sketched, FactorMode::LowRank}) {
      FactoredLinear layer = layer_of(256, 192, 64, mode, true);
      const at::NoGradGuard no_grad;
      const Tensor x = seeded_normal({64, 256}, 4);
      EXPECT_LE(relative(freeze(*layer, type)->forward(x.to(at::kFloat)), layer->forward(x)),
                bound_of(type));
    }
  }
}

TEST(FrozenLinear, multiplies_what_its_codes_mean_in_every_type_and_shape) {
  for (const FrozenType type : kTypes) {
    for (const auto& [in, out, rank] :
         {std::tuple<Index, Index, Index>{256, 192, 64}, {100, 70, 10}, {33, 17, 6}}) {
      for (const FactorMode mode : {FactorMode::Sketched, FactorMode::LowRank}) {
        FactoredLinear layer = layer_of(in, out, rank, mode, in != 100);
        FrozenLinear frozen = freeze(*layer, type);
        const at::NoGradGuard no_grad;
        for (const std::vector<std::int64_t>& sizes :
             {std::vector<std::int64_t>{in}, {1, in}, {5, 7, in}, {0, in}}) {
          const Tensor x = seeded_normal(sizes, 4);
          const Tensor want = decoded_forward(*frozen, x);
          const Tensor y = frozen->forward(x.to(at::kFloat));
          EXPECT_EQ(y.sizes(), want.sizes());
          EXPECT_LE(relative(y, want), 1e-5);
        }
      }
    }
  }
}

TEST(FrozenLinear, gives_gradients_to_its_input_alone) {
  for (const FrozenType type : kTypes) {
    FactoredLinear layer = layer_of(96, 64, 32, FactorMode::LowRank, true);
    FrozenLinear frozen = freeze(*layer, type);
    EXPECT_TRUE(frozen->parameters().empty());
    const Tensor x = seeded_normal({9, 96}, 4).set_requires_grad(true);
    const Tensor same = x.detach().to(at::kFloat).set_requires_grad(true);
    decoded_forward(*frozen, x).sum().backward();
    frozen->forward(same).sum().backward();
    EXPECT_LE(relative(same.grad(), x.grad()), 1e-5);
  }
}

TEST(FrozenLinear, has_the_bytes_of_its_type_in_files_and_is_loaded_from_them) {
  const hone::test::TemporaryFolder folder;
  const auto path = folder.path() / "frozen.safetensors";
  FactoredLinear layer = layer_of(256, 192, 64, FactorMode::LowRank, true);
  const Index numbers = 64 * (256 + 192);
  const Index bytes[] = {4 * numbers, 2 * numbers, numbers + numbers / 32 * 4};
  for (std::size_t i = 0; i < 3; ++i) {
    FrozenLinear frozen = freeze(*layer, kTypes[i]);
    EXPECT_EQ(frozen->facts().stored_bytes, bytes[i] + 192 * 4);
    const at::NoGradGuard no_grad;
    const Tensor x = seeded_normal({3, 256}, 4, at::kFloat);
    const Tensor want = frozen->forward(x);
    std::vector<NamedTensor> tensors;
    for (const auto& item : frozen->named_buffers()) {
      tensors.push_back({item.key(), item.value()});
    }
    write_tensors(path, tensors);
    FrozenLinear other(frozen->options());
    other->forward(x);  // packs zeros, which the file replaces
    {
      const MmapFile file(path);
      EXPECT_LE(std::ssize(file.bytes()), bytes[i] + 192 * 4 + 4096);
      const auto loaded = read_tensors(file);
      ASSERT_EQ(loaded.size(), tensors.size());
      for (const NamedTensor& stored : loaded) {
        Tensor to = other->named_buffers()[stored.name];
        EXPECT_EQ(stored.value.scalar_type(), to.scalar_type()) << stored.name;
        to.copy_(stored.value);
      }
    }
    EXPECT_TRUE(at::equal(other->forward(x), want));
    const auto copy = std::dynamic_pointer_cast<FrozenLinearImpl>(frozen->clone());
    EXPECT_TRUE(at::equal(copy->forward(x), want));
    frozen->to(at::kHalf);
    EXPECT_TRUE(at::equal(frozen->forward(x), want)) << "a frozen layer keeps its type";
  }
}

TEST(FrozenLinear, decodes_codes_to_within_half_a_step) {
  FactoredLinear layer = layer_of(100, 70, 10, FactorMode::LowRank, true);
  const auto [a, b] = layer->factors();
  FrozenLinear frozen = freeze(*layer, FrozenType::Int8);
  const auto [codes_a, codes_b] = frozen->factors();
  for (const auto& [got, want] : {std::pair{codes_a, a}, {codes_b, b.t()}}) {
    for (Index begin = 0; begin < want.size(1); begin += 32) {
      const Index count = std::min<Index>(32, want.size(1) - begin);
      const Tensor exact = want.narrow(1, begin, count);
      const Tensor step = exact.abs().amax(1, true) / 127;
      const Tensor error = (got.narrow(1, begin, count).to(at::kDouble) - exact).abs() / step;
      EXPECT_LE(error.max().item<double>(), 0.5001);
    }
  }
}

TEST(FrozenLinear, refuses_sizes_that_do_not_fit) {
  EXPECT_NE(refusal([] { FrozenLinear layer(FrozenLinearOptions{.in_features = 4}); }), "");
  FactoredLinear layer = layer_of(100, 70, 10, FactorMode::LowRank, true);
  FrozenLinear frozen = freeze(*layer, FrozenType::Int8);
  EXPECT_NE(refusal([&] { frozen->forward(at::ones({3, 99})); }).find("100]"), std::string::npos);
  EXPECT_NE(refusal([&] { frozen->set_factors(at::ones({9, 100}), at::ones({70, 10})); }), "");
}

}  // namespace
}  // namespace hone::nn
