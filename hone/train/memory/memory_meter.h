// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>

#include "hone/core/index.h"

namespace hone::memory {

// What the program was doing when memory was allocated.
enum class Phase { Other, Setup, Forward, Backward, Step };
inline constexpr std::size_t kPhases = 5;

// Bytes asked for, without the allocator's rounding.
struct MemoryUse {
  Index current = 0, peak = 0;
  // Alive now, and alive when `peak` was reached, by the phase that allocated them.
  std::array<Index, kPhases> by_phase{}, at_peak{};

  Index of(Phase phase) const { return by_phase[static_cast<std::size_t>(phase)]; }
  Index at_peak_of(Phase phase) const { return at_peak[static_cast<std::size_t>(phase)]; }
};

// Counts the bytes of CPU tensors while one exists, by standing before LibTorch's CPU allocator;
// all meters share one count. A tensor from before the first meter is not counted, not even when it
// is freed; one that outlives the last meter is, whenever that happens. Costs a lock and 64 bytes
// per allocation. Memory that libraries allocate themselves (oneDNN, MKL) is not seen.
class MemoryMeter {
 public:
  // Error{Unsupported} where another allocator keeps its place.
  MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;
  ~MemoryMeter();

  MemoryUse use() const;
  // The peak is from now on.
  void reset_peak() const;
  // Is this tensor's memory in the count?
  static bool counts(const at::Tensor& tensor);
};

// Allocations of the whole process belong to `phase` until the scope ends. Almost free where no
// meter counts.
class PhaseScope {
 public:
  explicit PhaseScope(Phase phase);
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;
  ~PhaseScope();

 private:
  Phase before_;
};

// While it lives, an allocation that would carry the count above `bytes` throws
// c10::OutOfMemoryError instead. Of nested limits the innermost holds. Needs a MemoryMeter.
class MemoryLimit {
 public:
  explicit MemoryLimit(Index bytes);
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;
  ~MemoryLimit();

 private:
  Index before_;
};

}  // namespace hone::memory
