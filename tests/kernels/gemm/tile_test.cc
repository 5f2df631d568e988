// SPDX-License-Identifier: Apache-2.0
// The raw sums of a tile: which bytes it touches, and that neither the order of panels nor the
// place where the depth is divided changes a bit.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

#include "hone/core/buffer.h"
#include "hone/kernels/gemm/gemm.h"
#include "hone/kernels/gemm/variant.h"
#include "tests/kernels/gemm/weight_support.h"

namespace hone::kernels {
namespace {

using test::fitting_cols;
using test::make_weight;
using test::random_floats;
using test::whole_tile;

// The last `bytes` of a page that is followed by one that must not be touched.
class GuardedBytes {
 public:
  explicit GuardedBytes(Index bytes) {
    const Index page = ::sysconf(_SC_PAGESIZE);
    length_ = static_cast<std::size_t>(round_up(bytes, page) + page);
    void* mapped =
        ::mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::runtime_error("mmap");
    base_ = static_cast<std::byte*>(mapped);
    ::mprotect(base_ + length_ - page, static_cast<std::size_t>(page), PROT_NONE);
    data_ = base_ + length_ - page - bytes;
  }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  ~GuardedBytes() { ::munmap(base_, length_); }
  std::byte* data() const { return data_; }

 private:
  std::byte *base_ = nullptr, *data_ = nullptr;
  std::size_t length_ = 0;
};

PackedRows pack_rows(const std::vector<float>& x, Index rows, Act act) {
  const Index cols = static_cast<Index>(x.size()) / rows;
  PackedRows packed;
  (act == Act::Int8 ? quantize_rows : interleave_rows)(x.data(), rows, cols, cols, packed,
                                                       serial_executor());
  return packed;
}

// The sums of parts of a tile that end at the columns `ends`.
std::vector<float> sums_in_parts(const PackedMatrix& weight, const PackedRows& x,
                                 const std::vector<Index>& ends, bool panel_by_panel = false) {
  TileArgs args = whole_tile(weight, x);
  const Index count = x.rows() * args.out_stride;
  const Buffer out(count * 4);
  args.out = out.as<float>();
  args.panel_by_panel = panel_by_panel;
  for (const Index end : ends) {
    args.k_end = end;
    choose_variant(weight.layout().kind, x.act()).tile(args);
    args.k_begin = end;
    args.accumulate = true;
  }
  return {out.as<float>(), out.as<float>() + count};
}

TEST(Tile, touches_no_byte_past_its_buffers) {
  for (const std::string& format : test::every_format()) {
    const Index cols = fitting_cols(format, 96);
    const PackedMatrix weight = pack(make_weight(format, 48, cols, 1).stored());
    for (const Act act : {Act::Float32, Act::Int8}) {
      if (!weight.takes(act)) continue;
      for (const Index rows : {1, 4, 12, 18}) {
        const PackedRows packed = pack_rows(random_floats(rows * cols, 2), rows, act);
        const Index x_bytes = ceil_div(rows, kRowGroup) * packed.group_bytes();
        const GuardedBytes panels(weight.bytes()), guarded_x(x_bytes), out(rows * 48 * 4);
        std::memcpy(panels.data(), weight.panel(0), static_cast<std::size_t>(weight.bytes()));
        std::memcpy(guarded_x.data(), packed.data(), static_cast<std::size_t>(x_bytes));
        TileArgs args = whole_tile(weight, packed);
        args.panels = panels.data();
        args.x = guarded_x.data();
        args.out = reinterpret_cast<float*>(out.data());
        choose_variant(weight.layout().kind, act).tile(args);
        const std::vector<float> wanted = sums_in_parts(weight, packed, {cols});
        EXPECT_EQ(std::memcmp(out.data(), wanted.data(), wanted.size() * 4), 0)
            << format << " with " << rows << " rows";
      }
    }
  }
}

TEST(Tile, takes_panels_one_by_one_and_several_at_once_with_the_same_bits) {
  constexpr Index kPanels = 7, kDepth = 512;
  for (const std::string& format : test::integer_formats()) {
    const PackedMatrix weight = pack(make_weight(format, kPanels * kPanelRows, kDepth, 1).stored());
    for (const Index rows : {1, 2, 3, 5, 8}) {
      const PackedRows x = pack_rows(random_floats(rows * kDepth, 2), rows, Act::Int8);
      EXPECT_EQ(sums_in_parts(weight, x, {kDepth}, true), sums_in_parts(weight, x, {kDepth}, false))
          << format << " with " << rows << " rows";
    }
  }
}

// Groups have 1 to 10 blocks here, so most of these places are inside a group.
TEST(Tile, may_be_divided_before_any_block_with_the_same_bits) {
  for (const std::string& format : test::every_format()) {
    const Index cols = fitting_cols(format, 320);
    const PackedMatrix weight = pack(make_weight(format, 80, cols, 3).stored());
    for (const Act act : {Act::Float32, Act::Int8}) {
      if (!weight.takes(act) || !choose_variant(weight.layout().kind, act).in_steps) continue;
      for (const Index rows : {1, 2, 6, 15}) {
        const PackedRows x = pack_rows(random_floats(rows * cols, 4), rows, act);
        const std::vector<float> whole = sums_in_parts(weight, x, {cols});
        std::vector<Index> every_block;
        for (Index end = kBlockCols; end <= cols; end += kBlockCols) {
          every_block.push_back(end);
          if (end == cols) continue;
          EXPECT_EQ(sums_in_parts(weight, x, {end, cols}), whole)
              << format << " with " << rows << " rows before column " << end;
        }
        EXPECT_EQ(sums_in_parts(weight, x, every_block), whole) << format;
      }
    }
  }
}

TEST(Gemm, reads_x_and_writes_y_up_to_a_guard_page) {
  const PackedMatrix weight = pack(make_weight("q8_0", 37, 96, 1).stored());
  for (const Index rows : {1, 3, 17}) {
    const auto x = random_floats(rows * 96, 2);
    const GuardedBytes guarded_x(rows * 96 * 4), y(rows * 37 * 4);
    std::memcpy(guarded_x.data(), x.data(), x.size() * 4);
    const auto* from = reinterpret_cast<const float*>(guarded_x.data());
    const GemmOutput output{
        .weight = &weight, .y = reinterpret_cast<float*>(y.data()), .y_stride = 37};
    gemm(from, rows, 96, output, serial_executor());
    std::vector<float> wanted(static_cast<std::size_t>(rows * 37));
    gemm(x.data(), rows, 96, {.weight = &weight, .y = wanted.data(), .y_stride = 37},
         serial_executor());
    EXPECT_EQ(std::memcmp(y.data(), wanted.data(), wanted.size() * 4), 0) << rows << " rows";
  }
}

}  // namespace
}  // namespace hone::kernels
