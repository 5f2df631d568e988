// SPDX-License-Identifier: Apache-2.0
#include "hone/core/thread/thread_pool.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "hone/core/buffer.h"
#include "hone/core/check.h"
#include "hone/core/machine/clock.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/core/machine/trace.h"
#include "hone/core/thread/thread_placement.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hone {
namespace {

// An idle worker spins this long before it sleeps: regions of one decode step follow each other
// within some 10 µs, and waking from a futex takes about as long.
constexpr std::int64_t kSpinNs = 50'000;
// A chunk's worker counts as preempted after this many times the region's mean chunk time, but at
// least kHeldNs: shorter than a scheduler's time slice (3 ms and more), longer than a cache-cold
// chunk.
constexpr int kHeldFactor = 8;
constexpr std::int64_t kHeldNs = 100'000;
// The number of regions that may have stragglers at a time. A worker is inside one region, so more
// than the workers that are preempted at a time suffice.
constexpr std::uint64_t kRing = 64;

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

template <class Condition>
void wait_while(const Condition& holds) {
  for (int spins = 0; holds(); ++spins) {
    if (spins < 4096) {
      relax();
    } else {
      std::this_thread::yield();  // whoever is waited for may be waiting for this core
    }
  }
}

// The pool whose body the current thread is running, so that nested calls run serially.
thread_local const void* t_inside = nullptr;

constexpr Index kClaimsPerLine = kCacheLine / Index{sizeof(std::uint64_t)};
struct alignas(kCacheLine) ClaimLine {
  std::array<std::atomic<std::uint64_t>, kClaimsPerLine> claims{};
};

// One worker's share of the chunks, from which others steal when theirs are taken. As long as they
// do not, chunks of different shares write to different cache lines: moving a line between cores
// without a common cache takes as long as reading some KiB of weights.
struct alignas(kCacheLine) Share {
  std::atomic<Index> next{0};  // the next chunk to take
  std::atomic<Index> open{0};  // chunks that are not done
  Index begin = 0, end = 0;
  Index first_line = 0;  // of Region::claims

  Index chunks() const { return end - begin; }
  Index lines() const { return ceil_div(chunks(), kClaimsPerLine); }
};

struct Chunk {
  Share* share = nullptr;
  Index index = 0;
};

struct Region {
  // The epoch this slot belongs to; 0 while it is being rewritten. A worker increments `inside`
  // before it checks the epoch, so once the caller has written 0 and seen inside == 0, no worker
  // reads the rest of the slot.
  alignas(kCacheLine) std::atomic<std::uint64_t> epoch{0};
  alignas(kCacheLine) std::atomic<int> inside{0};
  alignas(kCacheLine) std::atomic<int> open_shares{0};  // with chunks that are not done

  alignas(kCacheLine) Index chunks = 0;
  std::vector<Share> shares;
  std::atomic<bool> failed{false};
  std::exception_ptr error;  // written once, by the first thread to set `failed`
  std::mutex error_mutex;

  // parallel_for
  const Executor::RangeBody* body = nullptr;
  Index n = 0, grain = 1;

  // What `epoch` is while the region is open. Stays as it is while workers are inside.
  std::uint64_t generation = 0;

  // parallel_publish
  PublishWork work;
  // The generation in which each chunk was last claimed. Only the worker that first sets a claim to
  // the region's generation commits the chunk.
  std::vector<ClaimLine> claims;
  std::atomic<std::int64_t> started_ns{0};
  bool publishes = false;

  std::atomic<std::uint64_t>& claim(Chunk chunk) {
    const Index at = chunk.index - chunk.share->begin;
    const Index line = chunk.share->first_line + at / kClaimsPerLine;
    return claims[static_cast<std::size_t>(line)]
        .claims[static_cast<std::size_t>(at % kClaimsPerLine)];
  }
  void set_done(Chunk chunk) {
    if (chunk.share->open.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    open_shares.fetch_sub(1, std::memory_order_acq_rel);
  }
  bool all_done() const { return open_shares.load(std::memory_order_acquire) == 0; }
  Index count_done() const {
    Index done = chunks;
    for (const Share& share : shares) done -= share.open.load(std::memory_order_relaxed);
    return done;
  }
};

void leave_until_empty(const Region& region) {
  wait_while([&] { return region.inside.load(std::memory_order_seq_cst) != 0; });
}

}  // namespace

struct ThreadPool::State {
  State(int count, bool spread) : slots(static_cast<std::size_t>(count)) {
    if (spread) placement.emplace(count);
    for (Region& region : ring) region.shares = std::vector<Share>(static_cast<std::size_t>(count));
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    stopping.store(true, std::memory_order_release);
    epoch.fetch_add(1, std::memory_order_seq_cst);
    epoch.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  void worker_main(int worker);
  Region& open_region(Index chunks);
  void run_region(Region& region);
  void wait_and_rethrow(Region& region);
  void work_on(Region& region, int worker);
  Chunk take_chunk(Region& region, int worker);
  void run_chunk(Region& region, Chunk chunk, int worker);
  void publish_chunk(Region& region, Chunk chunk, int worker);
  void recompute_held(Region& region, int worker);
  void record_error(Region& region);

  int workers() const { return static_cast<int>(slots.size()); }

  std::array<Region, kRing> ring;
  std::vector<Buffer> slots;  // one private slot per worker, grown only by that worker
  std::optional<ThreadPlacement> placement;  // with `spread`
  std::vector<std::thread> threads;
  std::mutex caller;  // one region at a time
  alignas(kCacheLine) std::atomic<std::uint64_t> epoch{0};
  alignas(kCacheLine) std::atomic<int> sleepers{0};
  std::atomic<bool> stopping{false};
  std::atomic<Index> recomputed{0};
};

void ThreadPool::State::record_error(Region& region) {
  const std::lock_guard lock(region.error_mutex);
  if (!region.failed.exchange(true)) region.error = std::current_exception();
}

Chunk ThreadPool::State::take_chunk(Region& region, int worker) {
  const int count = workers();
  for (int step = 0; step < count; ++step) {
    Share& share = region.shares[static_cast<std::size_t>((worker + step) % count)];
    if (share.next.load(std::memory_order_relaxed) >= share.end) continue;
    const Index chunk = share.next.fetch_add(1, std::memory_order_relaxed);
    if (chunk < share.end) return {&share, chunk};
  }
  return {};
}

void ThreadPool::State::publish_chunk(Region& region, Chunk chunk, int worker) {
  Buffer& slot = slots[static_cast<std::size_t>(worker)];
  bool computed = false;
  if (!region.failed.load(std::memory_order_relaxed)) {
    try {
      if (slot.bytes() < region.work.slot_bytes) slot = Buffer(region.work.slot_bytes);
      region.work.compute(chunk.index, slot.data());
      computed = true;
    } catch (...) {
      record_error(region);
    }
  }
  // Relaxed, because a claim hands over no data; set_done() does.
  const std::uint64_t earlier =
      region.claim(chunk).exchange(region.generation, std::memory_order_relaxed);
  if (earlier == region.generation) return;
  if (computed) {
    try {
      region.work.commit(chunk.index, slot.data());
    } catch (...) {
      record_error(region);
    }
  }
  region.set_done(chunk);
}

// After a failure, the remaining chunks are counted but not run.
void ThreadPool::State::run_chunk(Region& region, Chunk chunk, int worker) {
  if (region.publishes) {
    publish_chunk(region, chunk, worker);
    return;
  }
  if (!region.failed.load(std::memory_order_relaxed)) {
    try {
      const Index begin = chunk.index * region.grain;
      (*region.body)(begin, std::min(region.n, begin + region.grain), worker);
    } catch (...) {
      record_error(region);
    }
  }
  region.set_done(chunk);
}

// Called when all chunks are taken but not all are done. Recomputes those still unclaimed after the
// deadline; each worker begins with its own share.
void ThreadPool::State::recompute_held(Region& region, int worker) {
  const std::int64_t now = steady_clock().now_ns();
  const std::int64_t elapsed = now - region.started_ns.load(std::memory_order_relaxed);
  const Index done = std::max<Index>(region.count_done(), 1);
  const std::int64_t mean = elapsed * std::min<Index>(workers(), region.chunks) / done;
  const std::int64_t deadline = now + std::max<std::int64_t>(kHeldNs, kHeldFactor * mean);
  while (!region.all_done() && steady_clock().now_ns() < deadline) relax();
  for (int step = 0; step < workers(); ++step) {
    Share& share = region.shares[static_cast<std::size_t>((worker + step) % workers())];
    for (Chunk chunk{&share, share.begin}; chunk.index < share.end; ++chunk.index) {
      if (region.claim(chunk).load(std::memory_order_relaxed) == region.generation) continue;
      if (region.all_done()) return;
      recomputed.fetch_add(1, std::memory_order_relaxed);
      run_chunk(region, chunk, worker);
    }
  }
}

void ThreadPool::State::work_on(Region& region, int worker) {
  const void* outer = std::exchange(t_inside, this);
  for (Chunk chunk = take_chunk(region, worker); chunk.share != nullptr;
       chunk = take_chunk(region, worker)) {
    run_chunk(region, chunk, worker);
  }
  if (region.publishes && !region.all_done()) recompute_held(region, worker);
  t_inside = outer;
}

void ThreadPool::State::worker_main(int worker) {
  std::uint64_t seen = 0;
  while (true) {
    std::int64_t spin_until = steady_clock().now_ns() + kSpinNs;
    while (epoch.load(std::memory_order_acquire) == seen) {
      for (int i = 0; i < 32 && epoch.load(std::memory_order_acquire) == seen; ++i) relax();
      if (steady_clock().now_ns() < spin_until) continue;
      if (placement) placement->leave(worker);
      sleepers.fetch_add(1, std::memory_order_seq_cst);
      epoch.wait(seen, std::memory_order_seq_cst);
      sleepers.fetch_sub(1, std::memory_order_relaxed);
    }
    // In this order: the last epoch, after which no other comes, is not seen without `stopping`.
    seen = epoch.load(std::memory_order_acquire);
    if (stopping.load(std::memory_order_acquire)) return;
    if (placement) placement->settle(worker);
    Region& region = ring[seen % kRing];
    region.inside.fetch_add(1, std::memory_order_seq_cst);
    if (region.epoch.load(std::memory_order_seq_cst) == seen) {
      HONE_TRACE_ZONE("chunks");
      work_on(region, worker);
    }
    region.inside.fetch_sub(1, std::memory_order_release);
  }
}

// Prepares the slot of a later epoch, which no worker touches until it is published: of the next
// one in whose slot no straggler is, if there is one.
Region& ThreadPool::State::open_region(Index chunks) {
  const std::uint64_t now = epoch.load(std::memory_order_relaxed);
  std::uint64_t later = now + 1;
  const auto is_taken = [&] { return ring[later % kRing].inside.load() != 0; };
  while (later < now + kRing && is_taken()) ++later;
  Region& region = ring[later % kRing];
  region.epoch.store(0, std::memory_order_seq_cst);
  leave_until_empty(region);
  region.generation = later;
  region.chunks = chunks;
  region.failed.store(false, std::memory_order_relaxed);
  region.error = nullptr;
  const int count = workers();
  Index lines = 0;
  for (int worker = 0; worker < count; ++worker) {
    Share& share = region.shares[static_cast<std::size_t>(worker)];
    share.begin = chunks * worker / count;
    share.end = chunks * (worker + 1) / count;
    share.next.store(share.begin, std::memory_order_relaxed);
    share.open.store(share.chunks(), std::memory_order_relaxed);
    share.first_line = lines;
    lines += share.lines();
  }
  region.open_shares.store(static_cast<int>(std::min<Index>(chunks, count)),
                           std::memory_order_relaxed);
  return region;
}

void ThreadPool::State::run_region(Region& region) {
  if (placement) placement->settle(0);
  region.started_ns.store(steady_clock().now_ns(), std::memory_order_relaxed);
  region.epoch.store(region.generation, std::memory_order_seq_cst);
  epoch.store(region.generation, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) > 0) epoch.notify_all();
  work_on(region, 0);
}

void ThreadPool::State::wait_and_rethrow(Region& region) {
  wait_while([&] { return !region.all_done(); });
  if (!region.failed.load(std::memory_order_acquire)) return;
  leave_until_empty(region);
  std::rethrow_exception(std::exchange(region.error, nullptr));
}

ThreadPool::ThreadPool(int threads, bool spread) {
  HONE_CHECK(threads >= 0 && threads <= 1024, "ThreadPool", "0 to 1024 threads", threads);
  const int count = threads == 0 ? usable_cpus() : threads;
  state_ = std::make_unique<State>(count, spread);
  for (int worker = 1; worker < count; ++worker) {
    try {
      state_->threads.emplace_back([state = state_.get(), worker] {
        name_thread(concat("worker ", worker));
        state->worker_main(worker);
      });
    } catch (const std::system_error& error) {
      fail(
          ErrorCategory::Resource, "ThreadPool",
          concat("The system refused thread ", worker + 1, " of ", count, ": ", error.what(), "."));
    }
  }
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::workers() const { return state_->workers(); }

void ThreadPool::parallel_for(Index n, Index grain, RangeBody body) {
  HONE_CHECK(grain > 0, "parallel_for", "grain > 0", grain);
  const Index chunks = ceil_div(n, grain);
  if (chunks <= 1 || workers() == 1 || t_inside == state_.get()) {
    serial_executor().parallel_for(n, grain, body);
    return;
  }
  const std::lock_guard lock(state_->caller);
  Region& region = state_->open_region(chunks);
  region.publishes = false;
  region.body = &body;
  region.n = n;
  region.grain = grain;
  state_->run_region(region);
  state_->wait_and_rethrow(region);
}

PublishTicket ThreadPool::parallel_publish(PublishWork work) {
  if (work.chunks <= 1 || workers() == 1 || t_inside == state_.get()) {
    return serial_executor().parallel_publish(std::move(work));
  }
  const std::lock_guard lock(state_->caller);
  Region& region = state_->open_region(work.chunks);
  region.publishes = true;
  region.work = std::move(work);
  const Share& last = region.shares.back();
  const auto lines = static_cast<std::size_t>(last.first_line + last.lines());
  if (lines > region.claims.size()) region.claims = std::vector<ClaimLine>(lines);
  const PublishTicket ticket{region.generation};
  state_->run_region(region);
  state_->wait_and_rethrow(region);
  if (!region.work.wait_for_stragglers) return ticket;
  leave_until_empty(region);
  return {};
}

bool ThreadPool::has_left(PublishTicket ticket) const {
  if (ticket.generation == 0) return true;
  // While the epoch is 0, another caller is waiting for the workers of that region, too.
  const Region& region = state_->ring[ticket.generation % kRing];
  const std::uint64_t epoch = region.epoch.load(std::memory_order_seq_cst);
  return (epoch != 0 && epoch != ticket.generation) ||
         region.inside.load(std::memory_order_seq_cst) == 0;
}

void ThreadPool::wait_left(PublishTicket ticket) {
  wait_while([&] { return !has_left(ticket); });
}

Index ThreadPool::chunks_recomputed() const { return state_->recomputed.load(); }

}  // namespace hone
