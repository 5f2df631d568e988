// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/error.h"
#include "hone/core/philox.h"
#include "tests/support/error_of.h"
#include "tests/support/largest_error.h"

namespace hone::kernels::test {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr double kEpsilon = 0x1p-23;  // of f32

// Uniform in (-size, size).
inline std::vector<float> random_values(Index count, std::uint64_t seed, float size = 1) {
  PhiloxStream random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = size * (2 * random.uniform() - 1);
  return values;
}

// Whole numbers of [-limit, limit]: sums of products of few of them are exact in f32.
inline std::vector<float> random_integers(Index count, std::uint64_t seed, int limit) {
  PhiloxStream random(seed, 2);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    const auto drawn = static_cast<int>(random.below(static_cast<std::uint32_t>(2 * limit + 1)));
    value = static_cast<float>(drawn - limit);
  }
  return values;
}

// Widths around every vector length, rows that fill several chunks.
constexpr std::pair<Index, Index> kRowShapes[] = {{1, 1},  {3, 2},    {2, 7},    {5, 16},
                                                  {4, 31}, {129, 33}, {700, 160}};

// Every element within tolerance times the largest expected magnitude.
inline void expect_close(const std::vector<float>& got, const std::vector<float>& want,
                         double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  hone::test::LargestError largest;
  for (std::size_t i = 0; i < got.size(); ++i) largest.add(got[i], want[i]);
  EXPECT_LE(largest.error, tolerance * std::max(1e-30, largest.wanted))
      << what << ": element " << largest.at << " got " << got[largest.at] << " want "
      << want[largest.at];
}

using hone::test::error_of;

// Floats that end where the next page must not be touched.
class GuardedFloats {
 public:
  explicit GuardedFloats(const std::vector<float>& values) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t bytes = values.size() * sizeof(float);
    const std::size_t readable = (bytes + page - 1) / page * page;
    size_ = readable + page;
    base_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) throw std::runtime_error("mmap");
    ::mprotect(static_cast<std::byte*>(base_) + readable, page, PROT_NONE);
    data_ = reinterpret_cast<float*>(static_cast<std::byte*>(base_) + readable - bytes);
    for (std::size_t i = 0; i < values.size(); ++i) data_[i] = values[i];
  }
  GuardedFloats(const GuardedFloats&) = delete;
  GuardedFloats& operator=(const GuardedFloats&) = delete;
  ~GuardedFloats() { ::munmap(base_, size_); }
  float* data() const { return data_; }

 private:
  void* base_ = nullptr;
  float* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace hone::kernels::test
