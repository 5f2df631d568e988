// SPDX-License-Identifier: Apache-2.0
#include "hone/core/thread_pool.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "hone/core/buffer.h"
#include "hone/core/check.h"
#include "hone/core/clock.h"
#include "hone/core/cpu_info.h"
#include "hone/core/trace.h"

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
// The number of regions that may have stragglers at a time. A decode step of a 22-layer model has
// about 110 regions.
constexpr std::uint64_t kRing = 64;

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// The pool whose body the current thread is running, so that nested calls run serially.
thread_local const void* t_inside = nullptr;

enum ChunkState : std::uint8_t { kOpen, kCommitting, kCommitted };

// One worker's share of the chunks. The owner and workers that steal take from the same counter.
struct alignas(kCacheLine) Share {
  std::atomic<Index> next{0};
  Index end = 0;
};

struct Region {
  // The epoch this slot belongs to; 0 while it is being rewritten. A worker increments `inside`
  // before it checks the epoch, so once the caller has written 0 and seen inside == 0, no worker
  // reads the rest of the slot.
  alignas(kCacheLine) std::atomic<std::uint64_t> epoch{0};
  alignas(kCacheLine) std::atomic<int> inside{0};
  alignas(kCacheLine) std::atomic<Index> done{0};

  Index chunks = 0;
  std::vector<Share> shares;
  std::atomic<bool> failed{false};
  std::exception_ptr error;  // written once, by the first thread to set `failed`
  std::mutex error_mutex;

  // parallel_for
  const Executor::RangeBody* body = nullptr;
  Index n = 0, grain = 1;

  // parallel_publish
  PublishWork work;
  std::unique_ptr<std::atomic<std::uint8_t>[]> chunk_states;
  Index chunk_capacity = 0;
  std::atomic<std::int64_t> started_ns{0};
  bool publishes = false;

  bool all_done() const { return done.load(std::memory_order_acquire) == chunks; }
};

}  // namespace

struct ThreadPool::State {
  explicit State(int count) : slots(static_cast<std::size_t>(count)) {
    for (Region& region : ring) region.shares = std::vector<Share>(static_cast<std::size_t>(count));
  }

  void worker_main(int worker);
  Region& open_region(Index chunks);
  void run_region(Region& region, std::uint64_t epoch_now, int worker);
  void wait_and_rethrow(Region& region);
  void work_on(Region& region, int worker);
  Index take_chunk(Region& region, int worker);
  void run_chunk(Region& region, Index chunk, int worker);
  void publish_chunk(Region& region, Index chunk, int worker);
  void recompute_held(Region& region, int worker);
  void record_error(Region& region);
  void leave_until_empty(Region& region);

  int workers() const { return static_cast<int>(slots.size()); }

  std::array<Region, kRing> ring;
  std::vector<Buffer> slots;  // one private slot per worker, grown only by that worker
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

Index ThreadPool::State::take_chunk(Region& region, int worker) {
  const int count = workers();
  for (int step = 0; step < count; ++step) {
    Share& share = region.shares[static_cast<std::size_t>((worker + step) % count)];
    if (share.next.load(std::memory_order_relaxed) >= share.end) continue;
    const Index chunk = share.next.fetch_add(1, std::memory_order_relaxed);
    if (chunk < share.end) return chunk;
  }
  return -1;
}

// Runs `finish` and counts the chunk, unless another worker has already claimed it.
template <class Finish>
void close_chunk(Region& region, Index chunk, const Finish& finish) {
  std::uint8_t open = kOpen;
  std::atomic<std::uint8_t>& state = region.chunk_states[static_cast<std::size_t>(chunk)];
  if (!state.compare_exchange_strong(open, kCommitting, std::memory_order_acq_rel)) return;
  finish();
  state.store(kCommitted, std::memory_order_release);
  region.done.fetch_add(1, std::memory_order_acq_rel);
}

void ThreadPool::State::publish_chunk(Region& region, Index chunk, int worker) {
  Buffer& slot = slots[static_cast<std::size_t>(worker)];
  bool computed = false;
  if (!region.failed.load(std::memory_order_relaxed)) {
    try {
      if (slot.bytes() < region.work.slot_bytes) slot = Buffer(region.work.slot_bytes);
      region.work.compute(chunk, slot.data());
      computed = true;
    } catch (...) {
      record_error(region);
    }
  }
  close_chunk(region, chunk, [&] {
    if (!computed) return;
    try {
      region.work.commit(chunk, slot.data());
    } catch (...) {
      record_error(region);
    }
  });
}

// After a failure, the remaining chunks are counted but not run.
void ThreadPool::State::run_chunk(Region& region, Index chunk, int worker) {
  if (region.publishes) {
    publish_chunk(region, chunk, worker);
    return;
  }
  if (!region.failed.load(std::memory_order_relaxed)) {
    try {
      const Index begin = chunk * region.grain;
      (*region.body)(begin, std::min(region.n, begin + region.grain), worker);
    } catch (...) {
      record_error(region);
    }
  }
  region.done.fetch_add(1, std::memory_order_acq_rel);
}

// Called when all chunks are taken but not all are committed. Recomputes those still open after the
// deadline.
void ThreadPool::State::recompute_held(Region& region, int worker) {
  const std::int64_t now = steady_clock().now_ns();
  const std::int64_t elapsed = now - region.started_ns.load(std::memory_order_relaxed);
  const Index done = std::max<Index>(region.done.load(std::memory_order_relaxed), 1);
  const std::int64_t mean = elapsed * workers() / done;
  const std::int64_t deadline = now + std::max<std::int64_t>(kHeldNs, kHeldFactor * mean);
  while (!region.all_done() && steady_clock().now_ns() < deadline) relax();
  for (Index chunk = 0; chunk < region.chunks && !region.all_done(); ++chunk) {
    if (region.chunk_states[static_cast<std::size_t>(chunk)].load() != kOpen) continue;
    recomputed.fetch_add(1, std::memory_order_relaxed);
    run_chunk(region, chunk, worker);
  }
}

void ThreadPool::State::work_on(Region& region, int worker) {
  const void* outer = std::exchange(t_inside, this);
  for (Index chunk = take_chunk(region, worker); chunk >= 0; chunk = take_chunk(region, worker)) {
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
      sleepers.fetch_add(1, std::memory_order_seq_cst);
      epoch.wait(seen, std::memory_order_seq_cst);
      sleepers.fetch_sub(1, std::memory_order_relaxed);
    }
    if (stopping.load(std::memory_order_acquire)) return;
    seen = epoch.load(std::memory_order_acquire);
    Region& region = ring[seen % kRing];
    region.inside.fetch_add(1, std::memory_order_seq_cst);
    if (region.epoch.load(std::memory_order_seq_cst) == seen) {
      HONE_TRACE_ZONE("chunks");
      work_on(region, worker);
    }
    region.inside.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadPool::State::leave_until_empty(Region& region) {
  for (int spins = 0; region.inside.load(std::memory_order_seq_cst) != 0; ++spins) {
    if (spins < 4096) {
      relax();
    } else {
      std::this_thread::yield();  // the straggler may be waiting for this core
    }
  }
}

// Prepares the slot of the next epoch, which no worker touches until it is published.
Region& ThreadPool::State::open_region(Index chunks) {
  Region& region = ring[(epoch.load(std::memory_order_relaxed) + 1) % kRing];
  region.epoch.store(0, std::memory_order_seq_cst);
  leave_until_empty(region);
  region.chunks = chunks;
  region.done.store(0, std::memory_order_relaxed);
  region.failed.store(false, std::memory_order_relaxed);
  region.error = nullptr;
  const int count = workers();
  for (int worker = 0; worker < count; ++worker) {
    Share& share = region.shares[static_cast<std::size_t>(worker)];
    share.next.store(chunks * worker / count, std::memory_order_relaxed);
    share.end = chunks * (worker + 1) / count;
  }
  return region;
}

void ThreadPool::State::run_region(Region& region, std::uint64_t epoch_now, int worker) {
  region.started_ns.store(steady_clock().now_ns(), std::memory_order_relaxed);
  region.epoch.store(epoch_now, std::memory_order_seq_cst);
  epoch.store(epoch_now, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) > 0) epoch.notify_all();
  work_on(region, worker);
}

void ThreadPool::State::wait_and_rethrow(Region& region) {
  for (int spins = 0; !region.all_done(); ++spins) {
    if (region.publishes && spins > 64) {
      recompute_held(region, 0);
    } else if (spins < 4096) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
  if (!region.failed.load(std::memory_order_acquire)) return;
  leave_until_empty(region);
  std::rethrow_exception(std::exchange(region.error, nullptr));
}

ThreadPool::ThreadPool(int threads) {
  HONE_CHECK(threads >= 0 && threads <= 1024, "ThreadPool", "0 to 1024 threads", threads);
  const int count = threads == 0 ? usable_cpus() : threads;
  state_ = std::make_unique<State>(count);
  for (int worker = 1; worker < count; ++worker) {
    state_->threads.emplace_back([state = state_.get(), worker] {
      name_thread(concat("worker ", worker));
      state->worker_main(worker);
    });
  }
}

ThreadPool::~ThreadPool() {
  state_->stopping.store(true, std::memory_order_release);
  state_->epoch.fetch_add(1, std::memory_order_seq_cst);
  state_->epoch.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

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
  state_->run_region(region, state_->epoch.load(std::memory_order_relaxed) + 1, 0);
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
  if (region.chunk_capacity < region.chunks) {
    region.chunk_capacity = region.chunks;
    region.chunk_states =
        std::make_unique<std::atomic<std::uint8_t>[]>(static_cast<std::size_t>(region.chunks));
  }
  for (Index chunk = 0; chunk < region.chunks; ++chunk) {
    region.chunk_states[static_cast<std::size_t>(chunk)].store(kOpen, std::memory_order_relaxed);
  }
  const PublishTicket ticket{state_->epoch.load(std::memory_order_relaxed) + 1};
  state_->run_region(region, ticket.generation, 0);
  state_->wait_and_rethrow(region);
  if (!region.work.wait_for_stragglers) return ticket;
  state_->leave_until_empty(region);
  return {};
}

void ThreadPool::wait_left(PublishTicket ticket) {
  if (ticket.generation == 0) return;
  Region& region = state_->ring[ticket.generation % kRing];
  if (region.epoch.load(std::memory_order_seq_cst) != ticket.generation) return;
  state_->leave_until_empty(region);
}

Index ThreadPool::chunks_recomputed() const { return state_->recomputed.load(); }

}  // namespace hone
