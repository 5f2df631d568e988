// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace hone {

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a pure
// function from (key, counter) to 128 random bits.
using PhiloxBlock = std::array<std::uint32_t, 4>;

constexpr PhiloxBlock philox(std::uint64_t key, PhiloxBlock counter) {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {
        static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

// Uniform in the open interval (0, 1), so that its logarithm is finite.
constexpr float open_unit_float(std::uint32_t bits) {
  return (static_cast<float>(bits >> 9) + 0.5f) * 0x1p-23f;
}
constexpr double open_unit_double(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = (std::uint64_t{high} << 20) ^ (low >> 12);
  return (static_cast<double>(bits & ((std::uint64_t{1} << 52) - 1)) + 0.5) * 0x1p-52;
}

// A stream of draws for one (seed, stream) pair. Its state is the position, which takes 8 bytes to
// save.
class PhiloxStream {
 public:
  using result_type = std::uint32_t;

  explicit PhiloxStream(std::uint64_t seed, std::uint64_t stream = 0)
      : seed_(seed), stream_(stream) {}

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return 0xffffffffu; }
  result_type operator()() {
    if (position_ % 4 == 0 || !fresh_) {
      const std::uint64_t block = position_ / 4;
      block_ = philox(
          seed_, {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                  static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)});
      fresh_ = true;
    }
    return block_[position_++ % 4];
  }
  float uniform() { return open_unit_float((*this)()); }
  double uniform_double() {
    const std::uint32_t high = (*this)();
    return open_unit_double(high, (*this)());
  }
  // Unbiased integer in [0, bound), bound >= 1 (Lemire, "Fast random integer generation in an
  // interval", 2019).
  std::uint32_t below(std::uint32_t bound) {
    std::uint64_t product = std::uint64_t{(*this)()} * bound;
    if (static_cast<std::uint32_t>(product) < bound) {
      const std::uint32_t threshold = (0u - bound) % bound;
      while (static_cast<std::uint32_t>(product) < threshold) {
        product = std::uint64_t{(*this)()} * bound;
      }
    }
    return static_cast<std::uint32_t>(product >> 32);
  }

  std::uint64_t position() const { return position_; }
  void seek(std::uint64_t position) {
    position_ = position;
    fresh_ = false;
  }

 private:
  std::uint64_t seed_, stream_, position_ = 0;
  PhiloxBlock block_{};
  bool fresh_ = false;
};

}  // namespace hone
