// SPDX-License-Identifier: Apache-2.0
// Packed matrices whose panels lie in somebody else's memory, as those of a mapped file do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/gemm/gemm.h"
#include "hone/kernels/gemm/layout_id.h"
#include "tests/kernels/gemm/weight_support.h"
#include "tests/support/error_of.h"

namespace hone::kernels {
namespace {

using hone::test::error_of;
using test::make_weight;
using test::TestWeight;
using testing::HasSubstr;

// The panels of a matrix, copied to other memory.
Buffer copy_of(const PackedMatrix& packed) {
  Buffer copy(packed.bytes());
  std::ranges::copy(packed.all_panels(), copy.data());
  return copy;
}

// A description of the matrix: blocks and dense values are absent.
StoredMatrix without_bytes(const StoredMatrix& stored) {
  StoredMatrix out = stored;
  out.bytes = {};
  return out;
}

std::vector<float> product(const PackedMatrix& weight, const std::vector<float>& x, Index rows,
                           Activation activation = Activation::None) {
  std::vector<float> y(static_cast<std::size_t>(rows * weight.rows()), -1.0f);
  gemm(x.data(), rows, weight.cols(),
       {.weight = &weight,
        .y = y.data(),
        .y_stride = weight.rows(),
        .epilogue = {.activation = activation}},
       serial_executor());
  return y;
}

void expect_same_products(const PackedMatrix& one, const PackedMatrix& other, Activation activation,
                          const std::string& what) {
  for (const Index rows : {1, 3, 17}) {
    const auto x = test::random_floats(rows * one.cols(), 5);
    const auto wanted = product(one, x, rows, activation),
               got = product(other, x, rows, activation);
    EXPECT_EQ(std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)), 0)
        << what << " " << rows;
  }
}

TEST(PanelView, multiplies_and_unpacks_as_the_matrix_that_was_packed) {
  for (const std::string& format : test::every_format()) {
    const TestWeight weight = make_weight(format, 37, test::fitting_cols(format, 96), 3);
    const StoredMatrix like = without_bytes(weight.stored());
    const PackedMatrix packed = pack(weight.stored());
    const Buffer panels = copy_of(packed);
    const PackedMatrix view = PackedMatrix::over(like, false, panels.span());
    EXPECT_EQ(PackedMatrix::packed_bytes(like, false), packed.bytes()) << format;
    EXPECT_EQ(view.bytes(), packed.bytes());
    EXPECT_EQ(view.rows(), 37);
    EXPECT_EQ(view.variant(), packed.variant());
    EXPECT_EQ(view.preferred_act(), packed.preferred_act());
    EXPECT_TRUE(view.layout() == packed.layout());
    EXPECT_EQ(view.panel(1), panels.data() + view.layout().panel_bytes);
    std::vector<float> got(static_cast<std::size_t>(weight.cols)), wanted(got.size());
    for (Index row = 0; row < 37; ++row) {
      view.unpack_row(row, got);
      decode_row(weight.stored(), row, wanted);
      EXPECT_EQ(std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)), 0) << format;
    }
    expect_same_products(packed, view, Activation::None, format);
  }
}

TEST(PanelView, gate_and_up) {
  for (const std::string& format : test::every_format()) {
    const Index cols = test::fitting_cols(format, 64);
    const TestWeight gate = make_weight(format, 33, cols, 1), up = make_weight(format, 33, cols, 2);
    const PackedMatrix packed = pack_gate_up(gate.stored(), up.stored());
    const Buffer panels = copy_of(packed);
    const StoredMatrix like = without_bytes(gate.stored());
    const PackedMatrix view = PackedMatrix::over(like, true, panels.span());
    EXPECT_TRUE(view.is_gate_up());
    EXPECT_EQ(view.panels(), packed.panels());
    EXPECT_EQ(PackedMatrix::packed_bytes(like, true), packed.bytes());
    expect_same_products(packed, view, Activation::SiluGate, format);
  }
}

TEST(PanelView, a_view_that_moves_still_views) {
  const TestWeight weight = make_weight("q8_0", 20, 64, 3);
  const PackedMatrix packed = pack(weight.stored());
  const Buffer panels = copy_of(packed);
  PackedMatrix view = PackedMatrix::over(weight.stored(), false, panels.span());
  PackedMatrix moved = std::move(view);
  EXPECT_EQ(moved.all_panels().data(), panels.data());
  moved = pack(weight.stored());  // and takes memory of its own
  EXPECT_NE(moved.all_panels().data(), panels.data());
  expect_same_products(packed, moved, Activation::None, "moved");
}

TEST(PanelView, refuses_panels_that_do_not_fit) {
  const TestWeight weight = make_weight("q4_0", 20, 64, 3);
  const StoredMatrix stored = weight.stored();
  const Index bytes = PackedMatrix::packed_bytes(stored, false);
  const Buffer memory(bytes + 64);
  const auto all = memory.span();
  const auto size = static_cast<std::size_t>(bytes);
  EXPECT_THAT(error_of([&] { PackedMatrix::over(stored, false, all.first(size - 1)); }),
              HasSubstr("bytes of panels"));
  EXPECT_THAT(error_of([&] { PackedMatrix::over(stored, false, all); }),
              HasSubstr("bytes of panels"));
  EXPECT_THAT(error_of([&] { PackedMatrix::over(stored, true, all.first(size)); }),
              HasSubstr("bytes of panels"));
  EXPECT_THAT(error_of([&] { PackedMatrix::over(stored, false, all.subspan(32, size)); }),
              HasSubstr("aligned"));
  EXPECT_THAT(error_of([&] { PackedMatrix::over(stored, false, {}); }),
              HasSubstr("bytes of panels"));
}

// What a loader relies on to have one of the two in memory at a time.
TEST(PackGateUp, reads_gate_before_and_up_after_the_callback) {
  ThreadPool pool(2);
  for (const std::string format : {"f32", "q8_0", "q4_k", "int4:g64:asym"}) {
    const Index cols = test::fitting_cols(format, 64);
    const TestWeight gate = make_weight(format, 50, cols, 1), up = make_weight(format, 50, cols, 2);
    const PackedMatrix wanted = pack_gate_up(gate.stored(), up.stored());
    TestWeight early = gate, late = gate;  // `late` becomes `up` when gate has been packed
    int calls = 0;
    const PackedMatrix got = pack_gate_up(early.stored(), late.stored(), pool, [&] {
      ++calls;
      std::ranges::copy(up.bytes, late.bytes.begin());
      std::ranges::copy(up.codes, late.codes.begin());
      std::ranges::copy(up.scales, late.scales.begin());
      std::ranges::copy(up.zeros, late.zeros.begin());
      for (auto* part : {&early.bytes, &early.codes, &early.scales, &early.zeros}) {
        std::ranges::fill(*part, std::byte{0});
      }
    });
    EXPECT_EQ(calls, 1);
    EXPECT_TRUE(std::ranges::equal(got.all_panels(), wanted.all_panels())) << format;
  }
}

TEST(LayoutId, is_a_name_that_stays) {
  const std::string id = packed_layout_id();
  EXPECT_EQ(id.size(), 16u);
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(packed_layout_id(), id);
}

}  // namespace
}  // namespace hone::kernels
