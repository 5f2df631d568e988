// SPDX-License-Identifier: Apache-2.0
#include "hone/core/file/mapped_range.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>

#include "hone/core/check.h"

namespace hone {
namespace detail {

// The version is odd while a slot changes. A fault lies in a range that stays for as long as
// somebody reads it, so a handler may skip the slots that change meanwhile.
struct MappedSlot {
  std::atomic<std::uint32_t> version{0};
  std::atomic<std::uintptr_t> begin{0}, end{0};
  std::atomic<int> protection{0};
  std::atomic<bool> is_damaged{false};
};
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free);

}  // namespace detail

namespace {

using detail::MappedSlot;

// Chunks are linked and never freed, so that a handler can walk through them at any time.
struct Chunk {
  std::array<MappedSlot, 64> slots;
  std::atomic<Chunk*> next{nullptr};
};

constinit Chunk first_chunk{};
constinit std::mutex registry;  // held by those who change slots, never by the handler
std::uintptr_t page_bytes = 4096;
struct sigaction previous_action {};

void set_range(MappedSlot& slot, std::uintptr_t begin, std::uintptr_t end, int protection) {
  slot.version.fetch_add(1);
  slot.begin = begin;
  slot.end = end;
  slot.protection = protection;
  slot.is_damaged = false;
  slot.version.fetch_add(1);
}

// Maps a page of zeros over `address`. Returns false if it lies in no range.
bool replace_page(std::uintptr_t address) {
  for (Chunk* chunk = &first_chunk; chunk != nullptr; chunk = chunk->next) {
    for (MappedSlot& slot : chunk->slots) {
      const std::uint32_t version = slot.version;
      const std::uintptr_t begin = slot.begin, end = slot.end;
      const int protection = slot.protection;
      const bool is_stable = version % 2 == 0 && slot.version == version;
      if (!is_stable || address < begin || address >= end) continue;
      slot.is_damaged = true;  // before anybody can read a zero
      auto* const page = reinterpret_cast<void*>(address / page_bytes * page_bytes);
      return ::mmap(page, page_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
             MAP_FAILED;
    }
  }
  return false;
}

// Does what would have happened without our handler.
void pass_on(int signal, siginfo_t* info, void* context) {
  if ((previous_action.sa_flags & SA_SIGINFO) != 0)
    return previous_action.sa_sigaction(signal, info, context);
  const bool is_fault = info->si_code > 0;  // rather than sent by kill()
  if (previous_action.sa_handler == SIG_IGN && !is_fault) return;
  if (previous_action.sa_handler != SIG_IGN && previous_action.sa_handler != SIG_DFL) {
    return previous_action.sa_handler(signal);
  }
  std::signal(SIGBUS, SIG_DFL);
  if (!is_fault) std::raise(SIGBUS);  // a fault repeats itself
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  // Not BUS_MCEERR_AR: memory that fails is no matter of a file.
  if (info->si_code != BUS_ADRERR || !replace_page(address)) pass_on(signal, info, context);
  errno = saved;
}

void install_handler() {
  page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, nullptr, &previous_action);  // before the handler can need it
  ::sigaction(SIGBUS, &action, nullptr);
}

MappedSlot& free_slot() {
  for (Chunk* chunk = &first_chunk;; chunk = chunk->next) {
    for (MappedSlot& slot : chunk->slots) {
      if (slot.begin == 0) return slot;
    }
    if (chunk->next == nullptr) chunk->next = new Chunk();
  }
}

}  // namespace

MappedRange::MappedRange(const void* begin, Index bytes, int protection) {
  if (bytes <= 0) return;
  const auto from = reinterpret_cast<std::uintptr_t>(begin);
  const std::lock_guard lock(registry);
  static const bool is_installed = (install_handler(), true);
  static_cast<void>(is_installed);
  HONE_REQUIRE(from % page_bytes == 0, "mapped range", "The range does not begin with a page.");
  slot_ = &free_slot();
  set_range(*slot_, from, from + static_cast<std::uintptr_t>(bytes), protection);
}

MappedRange::~MappedRange() {
  if (slot_ == nullptr) return;
  const std::lock_guard lock(registry);
  set_range(*slot_, 0, 0, 0);
}

bool MappedRange::is_damaged() const { return slot_ != nullptr && slot_->is_damaged; }

}  // namespace hone
