// SPDX-License-Identifier: Apache-2.0
// The float type that a folder has for matrices that are quantized.
#include <gtest/gtest.h>

#include <deque>

#include "hone/model_io/write_plan.h"

namespace hone::model_io {
namespace {

// A matrix of one row, whose values are `scale` times -128, -1, 0, 1 and 127.
class Quantized {
 public:
  NamedMatrix make(float scale) {
    scales_.push_back(scale);
    StoredMatrix matrix;
    matrix.layout = WeightLayout::Canonical;
    matrix.rows = 1;
    matrix.cols = static_cast<Index>(codes_.size());
    matrix.quant = {.spec = parse_quant_spec("int8:row"),
                    .rows = 1,
                    .cols = matrix.cols,
                    .codes = std::as_bytes(std::span(codes_)),
                    .scales = std::as_bytes(std::span(&scales_.back(), 1)),
                    .zeros = {}};
    return {"q", matrix};
  }

 private:
  std::array<std::int8_t, 5> codes_{-128, -1, 0, 1, 127};
  std::deque<float> scales_;
};

NamedMatrix dense(Dtype dtype, bool is_vector = false) {
  StoredMatrix matrix;
  matrix.rows = is_vector ? 1 : 2;
  matrix.dtype = dtype;
  return {"dense", matrix, is_vector};
}

StoreType choose(const std::vector<NamedMatrix>& tensors) { return choose_decoded_type(tensors); }

TEST(DecodedType, is_f16_where_its_values_are_normal_numbers) {
  Quantized quantized;
  EXPECT_EQ(choose({quantized.make(0.01f), quantized.make(3)}), StoreType::F16);
  EXPECT_EQ(choose({quantized.make(500)}), StoreType::F16) << "64,000 fits";
  EXPECT_EQ(choose({quantized.make(0)}), StoreType::F16);
}

TEST(DecodedType, is_bf16_where_one_matrix_is_beyond_f16) {
  Quantized quantized;
  EXPECT_EQ(choose({quantized.make(0.01f), quantized.make(600)}), StoreType::BF16) << "76,800";
  EXPECT_EQ(choose({quantized.make(0.01f), quantized.make(1e-9f)}), StoreType::BF16);
}

TEST(DecodedType, is_that_of_other_matrices_but_not_of_vectors) {
  Quantized quantized;
  const NamedMatrix small = quantized.make(0.01f), large = quantized.make(600);
  EXPECT_EQ(choose({small, dense(Dtype::BFloat16)}), StoreType::BF16);
  EXPECT_EQ(choose({large, dense(Dtype::Float16)}), StoreType::F16);
  EXPECT_EQ(choose({small, dense(Dtype::BFloat16, true)}), StoreType::F16);
  EXPECT_EQ(choose({small, dense(Dtype::Float32)}), StoreType::F16);
}

}  // namespace
}  // namespace hone::model_io
