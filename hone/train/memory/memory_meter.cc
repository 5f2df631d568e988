// SPDX-License-Identifier: Apache-2.0
#include "hone/train/memory/memory_meter.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <limits>
#include <mutex>
#include <new>

#include "hone/core/check.h"

namespace hone::memory {
namespace {

std::atomic<Phase> current_phase{Phase::Other};

struct Ledger {
  std::mutex mutex;
  MemoryUse use;
  Index limit = std::numeric_limits<Index>::max();
  int meters = 0;

  void add(Index bytes, Phase phase) {
    const std::lock_guard lock(mutex);
    if (bytes > limit - use.current) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, bytes, " bytes in addition to ", use.current,
                       " in use exceed the limit of ", limit);
    }
    use.current += bytes;
    use.by_phase[static_cast<std::size_t>(phase)] += bytes;
    if (use.current > use.peak) {
      use.peak = use.current;
      use.at_peak = use.by_phase;
    }
  }

  void remove(Index bytes, Phase phase) {
    const std::lock_guard lock(mutex);
    use.current -= bytes;
    use.by_phase[static_cast<std::size_t>(phase)] -= bytes;
  }
};

// Never destroyed, because tensors may be freed after static objects.
Ledger& ledger() {
  static Ledger& one = *new Ledger;
  return one;
}

// Precedes the allocated bytes. Its size is c10's alignment, which is thereby preserved.
struct alignas(64) Header {
  Index bytes;
  Phase phase;
  c10::DeleterFnPtr free;
};

void free_counted(void* data) {
  if (data == nullptr) return;  // oneDNN also frees the result of allocate(0)
  Header* const header = static_cast<Header*>(data) - 1;
  ledger().remove(header->bytes, header->phase);
  header->free(header);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &c10::detail::deleteNothing, at::kCPU};
    const auto size = static_cast<Index>(bytes);
    const Phase phase = current_phase.load(std::memory_order_relaxed);
    ledger().add(size, phase);
    try {
      void* const raw = inner_->raw_allocate(sizeof(Header) + bytes);
      Header* const header = new (raw) Header{size, phase, inner_->raw_deleter()};
      return {header + 1, header + 1, &free_counted, at::kCPU};
    } catch (...) {
      ledger().remove(size, phase);
      throw;
    }
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_counted; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  void install() {
    inner_ = c10::GetCPUAllocator();
    c10::SetCPUAllocator(this);
    if (c10::GetCPUAllocator() != this || inner_->raw_deleter() == nullptr) {
      c10::SetCPUAllocator(inner_);
      fail_unsupported("memory meter", "Another allocator has replaced LibTorch's CPU allocator.");
    }
  }
  void remove() { c10::SetCPUAllocator(inner_); }

 private:
  c10::Allocator* inner_ = nullptr;
};

CountingAllocator& counting_allocator() {
  static CountingAllocator& one = *new CountingAllocator;
  return one;
}

}  // namespace

MemoryMeter::MemoryMeter() {
  const std::lock_guard lock(ledger().mutex);
  if (ledger().meters == 0) counting_allocator().install();
  ++ledger().meters;
}

MemoryMeter::~MemoryMeter() {
  const std::lock_guard lock(ledger().mutex);
  if (--ledger().meters == 0) counting_allocator().remove();
}

MemoryUse MemoryMeter::use() const {
  const std::lock_guard lock(ledger().mutex);
  return ledger().use;
}

void MemoryMeter::reset_peak() const {
  const std::lock_guard lock(ledger().mutex);
  ledger().use.peak = ledger().use.current;
  ledger().use.at_peak = ledger().use.by_phase;
}

bool MemoryMeter::counts(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() &&
         tensor.storage().data_ptr().get_deleter() == &free_counted;
}

PhaseScope::PhaseScope(Phase phase) : before_(current_phase.exchange(phase)) {}
PhaseScope::~PhaseScope() { current_phase = before_; }

MemoryLimit::MemoryLimit(Index bytes) {
  const std::lock_guard lock(ledger().mutex);
  before_ = ledger().limit;
  ledger().limit = bytes;
}

MemoryLimit::~MemoryLimit() {
  const std::lock_guard lock(ledger().mutex);
  ledger().limit = before_;
}

}  // namespace hone::memory
