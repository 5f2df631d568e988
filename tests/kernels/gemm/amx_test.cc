// SPDX-License-Identifier: Apache-2.0
// The products on AMX's tiles: the bits of AVX-512 VNNI for every way to cut a product into strips
// of rows, panels and passes, and registers that neither other threads and signals nor the caller
// notice.
#include <gtest/gtest.h>

#if defined(__x86_64__)
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

#include "hone/core/buffer.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/gemm/gemm.h"
#include "hone/kernels/gemm/integer/int_tile.h"
#include "hone/kernels/gemm/packed_rows.h"
#include "tests/kernels/gemm/weight_support.h"

namespace hone::kernels {
namespace {

using test::fitting_cols;
using test::make_weight;
using test::random_floats;

// The function of one instruction set for a weight's panels.
TileFunction tile_of(const TileFunction* tiles, const PackedMatrix& weight) {
  return tiles[static_cast<int>(weight.layout().kind) - static_cast<int>(PanelKind::Code8)];
}

struct Problem {
  PackedMatrix weight;
  PackedRows x;

  Problem(const std::string& format, Index rows, Index panels, Index cols, float amplitude = 1)
      : weight(pack(
            make_weight(format, panels * kPanelRows, fitting_cols(format, cols), 1).stored())) {
    const auto values = random_floats(rows * weight.cols(), 2, amplitude);
    quantize(values, rows);
  }

  void quantize(const std::vector<float>& values, Index rows) {
    quantize_rows(values.data(), rows, weight.cols(), weight.cols(), x, serial_executor());
  }

  // The sums of parts of the depth that end at `ends`, in rows of `stride` floats.
  std::vector<float> sums(const TileFunction* tiles, const std::vector<Index>& ends,
                          Index stride) const {
    const Buffer out(x.rows() * stride * 4);
    std::fill_n(out.as<float>(), x.rows() * stride, -7.0f);
    TileArgs args = test::whole_tile(weight, x);
    args.out = out.as<float>();
    args.out_stride = stride;
    for (const Index end : ends) {
      args.k_end = end;
      tile_of(tiles, weight)(args);
      args.k_begin = end;
      args.accumulate = true;
    }
    return {out.as<float>(), out.as<float>() + x.rows() * stride};
  }
  std::vector<float> sums(const TileFunction* tiles) const {
    return sums(tiles, {weight.cols()}, weight.panels() * kPanelRows);
  }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class Amx : public testing::Test {
 protected:
  void SetUp() override {
    if (!isa_enabled(Isa::Amx)) GTEST_SKIP() << "no amx here";
  }
};

TEST_F(Amx, is_found_where_linux_lists_it) {
  std::ifstream file("/proc/cpuinfo");
  std::string flags;
  while (std::getline(file, flags) && !flags.starts_with("flags")) {
  }
  std::istringstream words(flags);
  const std::vector<std::string> all{std::istream_iterator<std::string>(words), {}};
  EXPECT_TRUE(std::ranges::find(all, "amx_int8") != all.end()) << flags;
}

TEST_F(Amx, multiplies_every_number_of_rows_as_vnni_does) {
  for (const std::string& format : test::integer_formats()) {
    for (Index rows = 12; rows <= 50; ++rows) {
      const Problem problem(format, rows, 2, 288);
      ASSERT_TRUE(same_bits(problem.sums(kIntTilesAmx), problem.sums(kIntTilesAvx512VnniL2)))
          << format << ", " << rows << " rows";
    }
  }
}

TEST_F(Amx, multiplies_every_number_of_panels_and_blocks_as_vnni_does) {
  for (const std::string& format : test::integer_formats()) {
    for (const Index panels : {1, 3, 4, 5, 8, 9}) {
      for (const Index cols : {1, 32, 33, 224, 256, 257, 512, 545}) {
        for (const Index rows : {16, 37}) {
          const Problem problem(format, rows, panels, cols);
          ASSERT_TRUE(same_bits(problem.sums(kIntTilesAmx), problem.sums(kIntTilesAvx512VnniL2)))
              << format << ", " << rows << " x " << cols << ", " << panels << " panels";
        }
      }
    }
  }
}

TEST_F(Amx, continues_sums_from_any_block_on) {
  for (const std::string& format : test::integer_formats()) {
    const Problem problem(format, 45, 5, 768);
    const Index cols = problem.weight.cols(), stride = 5 * kPanelRows;
    const std::vector<float> whole = problem.sums(kIntTilesAvx512VnniL2);
    for (Index end = kBlockCols; end < cols; end += kBlockCols) {
      ASSERT_TRUE(same_bits(problem.sums(kIntTilesAmx, {end, cols}, stride), whole))
          << format << " before column " << end;
    }
  }
}

TEST_F(Amx, writes_nothing_between_its_rows) {
  const Problem problem("q4_0", 31, 3, 96);
  constexpr Index kOutputs = 3 * kPanelRows, kStride = kOutputs + kPanelRows;
  const std::vector<float> wide = problem.sums(kIntTilesAmx, {96}, kStride);
  const std::vector<float> dense = problem.sums(kIntTilesAmx);
  for (Index row = 0; row < 31; ++row) {
    const auto at = wide.begin() + row * kStride;
    EXPECT_TRUE(std::equal(at, at + kOutputs, dense.begin() + row * kOutputs)) << row;
    EXPECT_EQ(std::count(at + kOutputs, at + kStride, -7.0f), kPanelRows) << row;
  }
}

TEST_F(Amx, keeps_values_that_are_not_finite_in_their_rows) {
  for (const std::string format : {"q8_0", "q4_0", "q4_k", "q5_1", "q6_k"}) {
    Problem problem(format, 32, 2, 256);
    const std::vector<float> clean = problem.sums(kIntTilesAmx);
    auto values = random_floats(32 * 256, 2);
    values[3 * 256 + 40] = std::numeric_limits<float>::quiet_NaN();
    values[20 * 256 + 255] = -std::numeric_limits<float>::infinity();
    problem.quantize(values, 32);
    const std::vector<float> sums = problem.sums(kIntTilesAmx);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const std::size_t row = i / (2 * kPanelRows);
      if (row == 3 || row == 20) {
        ASSERT_TRUE(std::isnan(sums[i])) << format << " row " << row;
      } else {
        ASSERT_EQ(sums[i], clean[i]) << format << " row " << row;
      }
    }
  }
}

TEST_F(Amx, gives_subnormal_and_huge_activations_the_bits_of_vnni) {
  for (const std::string format : {"q8_0", "q4_0", "q4_k", "q5_1", "q6_k"}) {
    for (const float amplitude : {1e-45f, 1e-38f, 1e-30f, 1e30f, 3e38f}) {
      const Problem problem(format, 19, 2, 256, amplitude);
      EXPECT_TRUE(same_bits(problem.sums(kIntTilesAmx), problem.sums(kIntTilesAvx512VnniL2)))
          << format << " with activations of " << amplitude;
    }
  }
}

// The largest sums that codes can have, and scales at the ends of their range.
TEST_F(Amx, gives_extreme_weights_the_bits_of_vnni) {
  using test::Fill;
  for (const std::string& format : test::gguf_formats()) {
    for (const Fill fill : {Fill::AllLowest, Fill::AllHighest, Fill::ZeroScale, Fill::NegativeScale,
                            Fill::SubnormalScale}) {
      Problem problem(format, 17, 2, 256);
      problem.weight = pack(make_weight(format, 2 * kPanelRows, 256, 1, fill).stored());
      std::vector<float> ones(17 * 256, 1.0f);  // codes of 127, and of -127 in odd rows
      for (std::size_t i = 0; i < ones.size(); ++i) ones[i] = i / 256 % 2 == 1 ? -1.0f : 1.0f;
      problem.quantize(ones, 17);
      EXPECT_TRUE(same_bits(problem.sums(kIntTilesAmx), problem.sums(kIntTilesAvx512VnniL2)))
          << format << ", fill " << static_cast<int>(fill);
    }
  }
}

TEST_F(Amx, is_what_gemm_chooses_and_changes_no_bit_of_it) {
  constexpr Index kRows = 205, kOutputs = 300, kDepth = 2112;
  const auto x = random_floats(kRows * kDepth, 4);
  ThreadPool pool(2);
  for (const std::string format : {"q8_0", "q4_0", "int4:g64:asym", "int8:row:asym"}) {
    const PackedMatrix weight = pack(make_weight(format, kOutputs, kDepth, 3).stored());
    EXPECT_EQ(gemm_kernel_name(weight, Act::Int8), "amx");
    std::vector<float> y(kRows * kOutputs), wanted(y.size());
    gemm(x.data(), kRows, kDepth, {.weight = &weight, .y = y.data(), .y_stride = kOutputs}, pool);
    ::setenv("HONE_FORCE_KERNEL", "gemm_q8:avx512vnni,gemm_q4:avx512vnni", 1);
    gemm(x.data(), kRows, kDepth, {.weight = &weight, .y = wanted.data(), .y_stride = kOutputs},
         pool);
    ::unsetenv("HONE_FORCE_KERNEL");
    EXPECT_TRUE(same_bits(y, wanted)) << format;
  }
}

TEST_F(Amx, adds_the_blocks_of_long_rows_in_their_order) {
  for (const std::string format : {"q8_0", "q4_0", "q4_k", "q5_1", "q6_k"}) {
    const Problem problem(format, 16, 2, 32768);
    EXPECT_TRUE(same_bits(problem.sums(kIntTilesAmx), problem.sums(kIntTilesAvx512VnniL2)))
        << format;
  }
}

// A zero point of more than 128 leaves no signed byte for a code of 0.
TEST_F(Amx, takes_zero_points_of_a_byte_with_codes_of_four_bits) {
  for (const std::string format : {"int4:g32:asym", "int4:g64:asym", "int3:row:asym"}) {
    for (const int zero : {15, 127, 128, 129, 255}) {
      auto made = make_weight(format, 2 * kPanelRows, 320, 1);
      made.zeros[made.zeros.size() / 2] = std::byte{static_cast<unsigned char>(zero)};
      Problem problem(format, 18, 2, 320);
      problem.weight = pack(made.stored());
      EXPECT_TRUE(same_bits(problem.sums(kIntTilesAmx), problem.sums(kIntTilesAvx512VnniL2)))
          << format << " with a zero point of " << zero;
      EXPECT_TRUE(same_bits(problem.sums(kIntTilesAmx, {64, 192, 320}, 2 * kPanelRows),
                            problem.sums(kIntTilesAvx512VnniL2)))
          << format << " in parts, of which one has a zero point of " << zero;
    }
  }
}

// What the processor has to save for this thread: bit 18 for the contents of tiles.
std::uint64_t states_in_use() {
  std::uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  return std::uint64_t{high} << 32 | low;
}

TEST_F(Amx, leaves_no_tiles_for_the_system_to_save) {
  const Problem problem("q8_0", 64, 2, 256);
  problem.sums(kIntTilesAmx);
  EXPECT_EQ(states_in_use() >> 17 & 3, 0U);
}

TEST_F(Amx, threads_multiply_different_formats_at_once) {
  const std::vector<std::string> formats = test::gguf_formats();
  std::atomic<int> wrong{0};
  std::vector<std::jthread> threads;
  for (const std::string& format : formats) {
    threads.emplace_back([&wrong, format] {
      const Problem problem(format, 40, 3, 512);
      const std::vector<float> wanted = problem.sums(kIntTilesAvx512VnniL2);
      for (int i = 0; i < 200; ++i) wrong += !same_bits(problem.sums(kIntTilesAmx), wanted);
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

std::atomic<int> g_signals{0};

// A timer interrupts the products some hundred times, on a stack of its own.
TEST_F(Amx, signals_do_not_disturb_a_product) {
  std::vector<char> stack(1 << 16);
  const stack_t alternate{.ss_sp = stack.data(), .ss_flags = 0, .ss_size = stack.size()};
  stack_t usual{};
  ASSERT_EQ(::sigaltstack(&alternate, &usual), 0);
  struct sigaction count {
  }, before{};
  count.sa_handler = [](int) { ++g_signals; };
  count.sa_flags = SA_ONSTACK | SA_RESTART;
  ASSERT_EQ(::sigaction(SIGALRM, &count, &before), 0);
  const itimerval often{.it_interval = {0, 200}, .it_value = {0, 200}};
  itimerval never{};
  const Problem problem("q4_k", 64, 4, 1024);
  const std::vector<float> wanted = problem.sums(kIntTilesAvx512VnniL2);
  g_signals = 0;
  int wrong = 0;
  ::setitimer(ITIMER_REAL, &often, nullptr);
  while (g_signals < 300) wrong += !same_bits(problem.sums(kIntTilesAmx), wanted);
  ::setitimer(ITIMER_REAL, &never, nullptr);
  EXPECT_EQ(wrong, 0);
  ::sigaction(SIGALRM, &before, nullptr);
  ::sigaltstack(&usual, nullptr);
}

TEST_F(Amx, child_processes_multiply_too) {
  const Problem problem("q5_0", 33, 2, 256);
  const std::vector<float> wanted = problem.sums(kIntTilesAmx);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(same_bits(problem.sums(kIntTilesAmx), wanted) ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(Amx, fits_into_a_small_stack) {
  struct Job {
    const Problem* problem;
    std::vector<float> sums;
  };
  for (const std::string format : {"q8_0", "q4_0", "q4_k", "q5_1", "q6_k"}) {
    const Problem problem(format, 32, 4, 512);
    Job job{&problem, {}};
    pthread_attr_t attributes;
    ASSERT_EQ(::pthread_attr_init(&attributes), 0);
    ASSERT_EQ(::pthread_attr_setstacksize(&attributes, 128 << 10), 0);
    const auto run = [](void* argument) -> void* {
      auto* const own = static_cast<Job*>(argument);
      own->sums = own->problem->sums(kIntTilesAmx);
      return nullptr;
    };
    pthread_t thread;
    ASSERT_EQ(::pthread_create(&thread, &attributes, run, &job), 0);
    ::pthread_join(thread, nullptr);
    ::pthread_attr_destroy(&attributes);
    EXPECT_TRUE(same_bits(job.sums, problem.sums(kIntTilesAvx512VnniL2))) << format;
  }
}

}  // namespace
}  // namespace hone::kernels
#endif
