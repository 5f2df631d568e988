// SPDX-License-Identifier: Apache-2.0
// What lists of tensors must fulfil: every refusal names the list and the tensor, and comes before
// anything is written.
#include <gtest/gtest.h>

#include <cmath>

#include "hone/kernels/multi_tensor/list/multi_tensor_list.h"
#include "tests/kernels/multi_tensor/list/float_list.h"
#include "tests/kernels/multi_tensor/tensor_set.h"
#include "tests/support/error_of.h"

namespace hone::kernels {
namespace {

using hone::test::refusal;
using hone::test::same_bits;
using test::FloatList;
using test::kInfinity;
using test::kNan;

Executor& serial() { return serial_executor(); }

TensorView view(float* data, const Shape& shape) { return {data, Dtype::Float32, shape}; }

TEST(ListErrors, lists_of_different_lengths) {
  const FloatList x({4, 5}, 1), y({4, 5, 6}, 2);
  EXPECT_EQ(refusal([&] { list_add(y.views, 1, x.views, serial()); }),
            "[list_add] expected 3 tensors in list x, got 2");
  EXPECT_EQ(refusal([&] { list_mul(x.views, y.views, serial()); }),
            "[list_mul] expected 2 tensors in list x, got 3");
  EXPECT_EQ(refusal([&] { list_axpby({.x = y.views, .y = y.views, .z = x.views}, serial()); }),
            "[list_axpby] expected 3 tensors in list z, got 2");
  std::vector<double> norms(2);
  EXPECT_EQ(refusal([&] { list_norm(y.views, serial(), NormKind::L2, norms); }),
            "[list_norm] expected 3 places for norms, got 2");
}

TEST(ListErrors, different_shapes_also_of_as_many_elements) {
  FloatList x({4, 6}, 1), y({4, 6}, 2);
  x.views[1].shape = Shape{2, 3};
  x.views[1].strides = Shape{3, 1};
  EXPECT_EQ(refusal([&] { list_add(y.views, 1, x.views, serial()); }),
            "[list_add] expected x of tensor 1 of shape [6], got [2, 3]");
}

TEST(ListErrors, negative_sizes) {
  float memory[8] = {};
  const std::vector<TensorView> negative{view(memory, Shape{-4})};
  EXPECT_EQ(refusal([&] { list_zero(negative, serial()); }),
            "[list_zero] expected sizes of at least 0 for y of tensor 0, got [-4]");
}

TEST(ListErrors, different_orders_of_dimensions) {
  FloatList x({6}, 1), y({6}, 2);
  x.views[0] = TensorView(x.views[0].data, Dtype::Float32, Shape{2, 3}, Shape{1, 2});
  y.views[0] = TensorView(y.views[0].data, Dtype::Float32, Shape{2, 3});
  EXPECT_EQ(refusal([&] { list_mul(y.views, x.views, serial()); }),
            "[list_mul] expected x of tensor 0 with strides [3, 1], got [1, 2]");
}

TEST(ListErrors, holes_expanded_and_reversed_dimensions) {
  float data[12] = {};
  for (const Shape& strides : {Shape{6, 1}, Shape{0, 1}, Shape{1, 1}, Shape{-3, 1}}) {
    const TensorView odd[] = {view(data, Shape{3}),
                              TensorView(data + 3, Dtype::Float32, Shape{2, 3}, strides)};
    const std::string want = concat("expected y of tensor 1 as one dense block, got strides ",
                                    to_text(strides), " on shape [2, 3]");
    EXPECT_EQ(refusal([&] { list_zero(odd, serial()); }), "[list_zero] " + want);
    EXPECT_EQ(refusal([&] { list_clip_norm(odd, 1, serial()); }), "[list_clip_norm] " + want);
    EXPECT_NE(refusal([&] { list_norm(odd, serial()); }), "");
  }
}

TEST(ListErrors, other_types_and_missing_memory) {
  FloatList x({4, 6}, 1), y({4, 6}, 2);
  x.views[1].dtype = Dtype::BFloat16;
  const auto unsupported = ErrorCategory::Unsupported;
  EXPECT_EQ(refusal([&] { list_add(y.views, 1, x.views, serial()); }, unsupported),
            "[list_add] expected f32 for x of tensor 1, got bf16");
  EXPECT_EQ(refusal([&] { list_norm(x.views, serial()); }, unsupported),
            "[list_norm] expected f32 for x of tensor 1, got bf16");
  EXPECT_EQ(refusal([&] { list_mul(x.views, 2, serial()); }, unsupported),
            "[list_mul] expected f32 for y of tensor 1, got bf16");
  y.views[0].data = nullptr;
  EXPECT_EQ(refusal([&] { list_clamp(y.views, 0, 1, serial()); }),
            "[list_clamp] expected memory for y of tensor 0, got none");
}

TEST(ListErrors, written_tensors_that_share_memory) {
  std::vector<float> data(40, 1.0f);
  // In any order of addresses, and by as little as one element.
  const TensorView clash[] = {view(data.data() + 20, Shape{5}), view(data.data(), Shape{6}),
                              view(data.data() + 30, Shape{0}), view(data.data() + 5, Shape{3})};
  const TensorView apart[] = {view(data.data() + 20, Shape{5}), view(data.data(), Shape{5}),
                              view(data.data() + 3, Shape{0}), view(data.data() + 5, Shape{15})};
  const std::string want =
      "expected y of tensor 3 in memory of its own, got memory shared with y of tensor 1";
  EXPECT_EQ(refusal([&] { list_mul(clash, 2, serial()); }), "[list_mul] " + want);
  EXPECT_EQ(refusal([&] { list_zero(clash, serial()); }), "[list_zero] " + want);
  EXPECT_EQ(refusal([&] { list_clip_norm(clash, 2, serial()); }), "[list_clip_norm] " + want);
  const TensorView twice[] = {clash[0], clash[0]};
  EXPECT_NE(refusal([&] { list_clamp(twice, 0, 2, serial()); }), "");
  EXPECT_EQ(data, std::vector<float>(40, 1.0f));
  list_mul(apart, 2, serial());                             // neighbors
  EXPECT_EQ(list_norm(clash, serial(), NormKind::Max), 2);  // norms only read
}

TEST(ListErrors, tensors_that_are_read_where_another_is_written) {
  std::vector<float> data(40, 1.0f);
  const TensorView y[] = {view(data.data() + 8, Shape{4}), view(data.data(), Shape{4})};
  const TensorView swapped[] = {y[1], y[0]};
  const TensorView shifted[] = {view(data.data() + 11, Shape{4}), view(data.data() + 20, Shape{4})};
  EXPECT_EQ(refusal([&] { list_add(y, 1, swapped, serial()); }),
            "[list_add] expected x of tensor 0 in memory of its own, got memory shared with y of "
            "tensor 1");
  EXPECT_EQ(refusal([&] { list_mul(y, shifted, serial()); }),
            "[list_mul] expected x of tensor 0 in memory of its own, got memory shared with y of "
            "tensor 0");
  EXPECT_EQ(refusal([&] { list_axpby({.x = y, .y = shifted, .z = y}, serial()); }),
            "[list_axpby] expected y of tensor 0 in memory of its own, got memory shared with z "
            "of tensor 0");
  EXPECT_EQ(data, std::vector<float>(40, 1.0f));
  // What is only read may be read twice, and may be the tensor that is written.
  const TensorView same[] = {view(data.data() + 20, Shape{4}), view(data.data() + 20, Shape{4})};
  list_add(y, 1, same, serial());
  list_add(y, 1, y, serial());
  EXPECT_EQ(data[0], 4);
  EXPECT_EQ(data[11], 4);
  EXPECT_EQ(data[20], 1);
}

TEST(ListErrors, factors_and_limits) {
  const FloatList y({4, 6, 1}, 2);
  const auto old = y.values();
  EXPECT_EQ(refusal([&] {
              list_mul(y.views, std::vector<double>{1, 2}, serial());
            }),
            "[list_mul] expected 3 numbers in factor, got 2");
  EXPECT_EQ(refusal([&] { list_add(y.views, std::vector<double>{}, y.views, serial()); }),
            "[list_add] expected 3 numbers in alpha, got 0");
  EXPECT_EQ(refusal([&] { list_mul(y.views, 1e39, serial()); }),
            "[list_mul] expected factor in the range of f32, got 1e+39");
  EXPECT_EQ(refusal([&] { list_clamp(y.views, 1, -1, serial()); }),
            "[list_clamp] expected highest of at least lowest = 1, got -1");
  EXPECT_NE(refusal([&] { list_clamp(y.views, kNan, 1, serial()); }), "");
  EXPECT_NE(refusal([&] { list_clamp(y.views, 0, kNan, serial()); }), "");
  EXPECT_NE(refusal([&] { list_clamp(y.views, 0, 1e300, serial()); }), "");
  EXPECT_EQ(refusal([&] { list_clip_norm(y.views, -1, serial()); }),
            "[list_clip_norm] expected max_norm of at least 0, got -1");
  EXPECT_NE(refusal([&] { list_clip_norm(y.views, kNan, serial()); }), "");
  EXPECT_TRUE(same_bits(y.values(), old));
}

}  // namespace
}  // namespace hone::kernels
