// SPDX-License-Identifier: Apache-2.0
#include "hone/core/format/bitmask.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/core/philox.h"
#include "tests/support/error_of.h"

namespace hone {
namespace {

using testing::HasSubstr;

struct Dense {
  std::vector<std::byte> bytes;
  StoredMatrix matrix;
};

// Values of which about `zeros` of 100 are 0.
Dense dense(Dtype dtype, Index rows, Index cols, std::uint64_t zeros) {
  PhiloxStream random(7);
  Dense out;
  const Index size = bytes_of(dtype);
  out.bytes.resize(static_cast<std::size_t>(rows * cols * size));
  for (Index i = 0; i < rows * cols; ++i) {
    const float value =
        random.below(100) < zeros ? 0 : static_cast<float>(random.below(1000)) / 64 - 7.5f;
    const std::uint16_t half = dtype == Dtype::Float16 ? float_to_f16(value) : float_to_bf16(value);
    if (size == 4) {
      std::memcpy(out.bytes.data() + i * 4, &value, 4);
    } else {
      std::memcpy(out.bytes.data() + i * 2, &half, 2);
    }
  }
  out.matrix.rows = rows;
  out.matrix.cols = cols;
  out.matrix.dtype = dtype;
  out.matrix.bytes = out.bytes;
  return out;
}

struct Masked {
  std::vector<std::byte> mask, kept;
};
Masked mask_out(const StoredMatrix& matrix) {
  Masked out;
  for (Index row = 0; row < matrix.rows; ++row) append_masked_row(matrix, row, out.mask, out.kept);
  return out;
}

std::vector<float> values_of(const StoredMatrix& matrix) {
  std::vector<float> out(static_cast<std::size_t>(matrix.rows * matrix.cols));
  decode(matrix, out);
  return out;
}

TEST(Bitmask, gives_dense_values_back) {
  for (const Dtype dtype : {Dtype::Float32, Dtype::Float16, Dtype::BFloat16}) {
    for (const Index cols : {1, 7, 8, 65}) {
      Dense one = dense(dtype, 9, cols, 60);
      const Masked masked = mask_out(one.matrix);
      const Buffer back = expand_masked(one.matrix, masked.mask, masked.kept, "w");
      StoredMatrix again = one.matrix;
      again.bytes = back.span();
      EXPECT_EQ(values_of(again), values_of(one.matrix));
    }
  }
}

TEST(Bitmask, tells_its_bytes_or_that_it_does_not_pay) {
  const Dense half = dense(Dtype::Float32, 300, 64, 50), full = dense(Dtype::Float32, 300, 64, 1);
  const auto sizes = masked_sizes(half.matrix);
  ASSERT_TRUE(sizes.has_value());
  const Masked masked = mask_out(half.matrix);
  EXPECT_EQ(sizes->mask, std::ssize(masked.mask));
  EXPECT_EQ(sizes->kept, std::ssize(masked.kept));
  EXPECT_EQ(sizes->mask, 300 * 8);
  EXPECT_FALSE(masked_sizes(full.matrix).has_value());
  const Dense none = dense(Dtype::Float16, 3, 64, 100);
  EXPECT_EQ(masked_sizes(none.matrix)->kept, 0);
}

TEST(Bitmask, gives_codes_back) {
  PhiloxStream random(9);
  const Index rows = 5, cols = 83;
  for (const char* name : {"int4:g32:asym", "int4:g16:sym", "int3:row", "int8:row", "int2:g64:asym",
                           "int5:tensor", "log4:g32", "log3:row"}) {
    const QuantSpec spec = parse_quant_spec(name);
    const Index groups = spec.groups_per_row(cols), group = spec.group_size(cols);
    const Index scales = spec.span == ScaleSpan::Tensor ? 1 : rows * groups;
    std::vector<std::byte> codes,
        scale_bytes(static_cast<std::size_t>(scales * bytes_of(spec.scale_dtype)));
    std::vector<std::byte> zeros(static_cast<std::size_t>(spec.symmetric ? 0 : scales));
    for (std::byte& byte : zeros) byte = static_cast<std::byte>(random.below(1u << spec.bits));
    for (Index i = 0; i < scales; ++i) {
      const float scale = 0.5f;
      const std::uint16_t half = float_to_f16(scale);
      std::memcpy(scale_bytes.data() + i * bytes_of(spec.scale_dtype),
                  spec.scale_dtype == Dtype::Float32 ? static_cast<const void*>(&scale) : &half,
                  static_cast<std::size_t>(bytes_of(spec.scale_dtype)));
    }
    for (Index row = 0; row < rows; ++row) {
      for (Index g = 0; g < groups; ++g) {
        std::vector<std::uint8_t> some(static_cast<std::size_t>(group));
        for (Index i = 0; i < std::min(group, cols - g * group); ++i) {
          const int zero =
              zeros.empty()
                  ? 0
                  : std::to_integer<int>(zeros[static_cast<std::size_t>(row * groups + g)]);
          some[static_cast<std::size_t>(i)] =
              static_cast<std::uint8_t>(random.below(2) == 0 ? static_cast<std::uint64_t>(zero)
                                                             : random.below(1u << spec.bits));
        }
        const auto at = codes.size();
        codes.resize(at + static_cast<std::size_t>(ceil_div(group * spec.bits, 8)));
        pack_codes(some, spec.bits, std::span(codes).subspan(at));
      }
    }
    StoredMatrix matrix;
    matrix.layout = WeightLayout::Canonical;
    matrix.rows = rows;
    matrix.cols = cols;
    matrix.quant = {spec, rows, cols, codes, scale_bytes, zeros};
    check_quant_matrix(matrix.quant);
    const Masked masked = mask_out(matrix);
    const Buffer back = expand_masked(matrix, masked.mask, masked.kept, "w");
    EXPECT_TRUE(std::ranges::equal(back.span(), codes)) << name;
  }
}

TEST(Bitmask, refuses_masks_that_do_not_fit) {
  const Dense one = dense(Dtype::Float32, 6, 20, 50);
  const Masked good = mask_out(one.matrix);
  const auto refuse = [&](const Masked& bad, const char* what) {
    EXPECT_THAT(hone::test::refusal([&] { expand_masked(one.matrix, bad.mask, bad.kept, "w"); },
                                    ErrorCategory::CorruptFile),
                HasSubstr(what));
  };
  Masked more = good, fewer = good, small = good;
  std::ranges::fill(more.mask, std::byte{0xff});
  std::ranges::fill(fewer.mask, std::byte{0});
  small.mask.pop_back();
  refuse(more, "more elements");
  refuse(fewer, "fewer elements");
  refuse(small, "a mask of 18 bytes");
}

}  // namespace
}  // namespace hone
