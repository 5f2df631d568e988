// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/core/machine/clock.h"
#include "hone/infer/kv/block_table.h"
#include "hone/infer/kv/prefix_cache.h"
#include "hone/infer/sched/step_plan.h"

namespace hone::infer {

// A prefill chunk of at least this size is a multiple of it, unless it reaches the end of the text.
inline constexpr Index kChunkTokens = 16;

inline constexpr double kStallSeconds = 30;
inline constexpr Index kNoClass = Index{1} << 30;  // worse than any priority class

struct SchedulerOptions {
  std::vector<LayerGroup> groups{};
  Index kv_bytes = 0;  // budget of the KV cache
  PrefixSecret prefix_secret{};
  PrefixCache::ExtendKey extend_key = infer::extend_key;
  Index context = 0;          // maximum tokens of a text
  Index max_running = 16;     // maximum number of sequences in a step
  Index max_queue = 64;       // maximum number of waiting and parked requests
  Index prefill_chunk = 512;  // maximum prefill tokens of a step; below 16 or a multiple of 16
  Index max_rows = 512;       // maximum rows of a step; at least max_running + 16 and prefill_chunk
  // A step that also decodes limits its prefill so that it takes at most `slowdown` × the predicted
  // time of the decodes alone, or `least_target_seconds` if that is longer.
  double slowdown = 2.5;
  double least_target_seconds = 0.02;
  // A step without decodes ends its prefill after this predicted time, but not before 128 tokens,
  // so that requests that arrive soon get their turn; 0: no limit.
  double prefill_seconds = 0;
  double ageing_seconds = 10;            // waiting this long raises a request by one priority class
  double stall_seconds = kStallSeconds;  // a parked request is cancelled after this time
};

// A request as the scheduler sees it. `id` must not be in use.
struct Submission {
  RequestId id = 0;
  RequestKind kind = RequestKind::Generate;
  std::vector<TokenId> tokens{};  // at least one
  Index max_tokens = 0;           // Generate: new tokens; others: 0
  // The first position whose output is wanted. Outputs are delivered once each, in order. Tokens
  // before it may come from the prefix cache. At most the last position; Generate samples at that
  // one.
  Index first_output = 0;
  Priority priority = Priority::Normal;
  std::optional<TimeNs> deadline{};
  std::uint64_t salt = 0;  // tenant; requests with different salts never share cached tokens
  Index room = 0;          // Generate: free slots of the event ring, at least 2
  // A request of the same tenant that begins with the same tokens as this one. While it waits or
  // computes these tokens, this one waits. Then this one starts from its blocks, including the
  // last, partly filled one.
  std::optional<RequestId> fork_of{};
};

enum class EndCause {
  // The last result reported it, the text has as many tokens as it may have, or every token of a
  // Read is computed.
  Finished,
  Cancelled,  // by cancel()
  DeadlinePassed,
  Stalled,  // its reader accepted no event for stall_seconds
  Failed,   // reported by the last result, or by fail_all()
};

struct Ended {
  RequestId id = 0;
  EndCause cause = EndCause::Finished;
};

// At any time submitted = finished + rejected + cancelled + failed + running + waiting.
struct SchedulerCounters {
  Index submitted = 0, finished = 0, rejected = 0, failed = 0;
  Index cancelled = 0;             // by request, by deadline, or because the reader stalled
  Index running = 0, waiting = 0;  // parked requests count as running, preempted ones as waiting
  Index parked = 0;                // part of `running`
  Index preemptions = 0;
  Index started_tokens = 0;  // tokens of the texts of started requests, counted at each start
  Index cached_tokens = 0;   // the part that came from the prefix cache or a forked request
  Index evictions = 0;       // what the prefix cache gave up: PrefixCache::evictions()
};

// Decides what runs in each step. A pure state machine: it computes nothing, starts no thread and
// reads no clock. Equal calls lead to equal plans.
//
//             start                 result
//   waiting ----------> running ------------------> ended
//      ^                 |  ^  |                      ^
//      |    preempted    |  |  | ring full            | cancel, deadline, failure, stall:
//      +-----------------+  |  v                      | from every state
//                  start  parked ---------------------+
//
// One thread calls plan(), runs the model, and calls apply() with the result. submit(), cancel()
// and set_room() are allowed in between and take effect afterwards. `now` must not decrease.
//
// Order of precedence: priority class, then arrival. A request rises by one class for each
// `ageing_seconds` that it has waited. Within a class, the tenant that has been served least goes
// first: order of service. A step consists of
//   1. one row, and drafts, for each running sequence whose text has one token outside the cache;
//   2. prefill chunks of running, waiting and parked sequences in order of service. While sequences
//      decode, chunks are limited so that the predicted duration of the step stays within its
//      target (see `slowdown`), but to no less than one token a step, so that no sequence starves.
//      Otherwise, they have up to `prefill_chunk` tokens. A chunk is a multiple of 16 tokens, a
//      power of two below that, or reaches the end of the text. The first sequence leaves a quarter
//      of the tokens to the shortest others of its class, so that a long text does not stop them.
// A sequence starts only if its whole text fits into free and cached memory, with one spare block
// of each group for each running sequence. None starts before another one of the same or a better
// class that does not fit. If another sequence computes the next tokens of a sequence in this step,
// the sequence waits for them instead.
//
// When blocks run out, the prefix cache is evicted first. Then parked sequences lose their blocks,
// and then the running sequences that come last in precedence and are not part of the step. They
// are recomputed when they start again. Drafts do not preempt any sequence. Sequences that wait
// take places and memory from running ones of worse classes, and from tenants that have more than
// an equal share of them while their own tenant has less.
class Scheduler {
 public:
  // Throws Error{InvalidArgument} for options that contradict each other or allow no request.
  explicit Scheduler(const SchedulerOptions& options);

  // Accepts a request. Refuses it if too many wait, if its tokens (for Generate, and one more)
  // exceed max_length(), or if its deadline has passed. Throws Error{InvalidArgument} for an
  // invalid one.
  std::optional<Refusal> submit(Submission submission, TimeNs now);
  // Unknown ids are ignored. A request of the plan in progress ends in apply().
  void cancel(RequestId id);
  // Sets the number of events that the request's ring can accept. Generate runs only while it is at
  // least 2, so that one slot always remains for the event that ends the request.
  void set_room(RequestId id, Index room);
  // Restarts the stall time of a parked request, because its reader has accepted an event.
  void restart_stall(RequestId id, TimeNs now);
  // Sets drafts of the tokens that follow the text, for the next plan only. The plan may drop any
  // of them.
  void set_drafts(RequestId id, std::vector<TokenId> drafts);
  // A sequence whose text has one token outside the cache, and the maximum number of drafts within
  // its limits. The next plan includes it and its drafts, unless places, memory or rows run out.
  struct Decoding {
    RequestId id = 0;
    Index most_drafts = 0;
  };
  std::vector<Decoding> decoding() const;

  // Throws Error{InvalidArgument} if the last plan has not been applied. A plan without sequences
  // needs no apply(). After it, nothing can run until a request is submitted, the room of a parked
  // request changes, or next_timer() is reached.
  StepPlan plan(TimeNs now);
  void apply(const StepResult& result);
  // Ends every request as failed. After an exception from plan() or apply() this is the only way to
  // go on: it releases all blocks, and the scheduler can be used again.
  void fail_all();
  // The requests that ended since the last call, each exactly once.
  std::vector<Ended> take_ended();
  // Evicts the least recently used prefixes until those that no sequence uses take at most `bytes`.
  void shrink_cache(Index bytes);
  // The next time at which a deadline passes or a parked request stalls, so that plan() has
  // something to do.
  std::optional<TimeNs> next_timer() const;

  SchedulerCounters counters() const;
  // The maximum number of tokens of a text: the context, or what fits in the KV cache for one
  // sequence.
  Index max_length() const { return max_length_; }
  const BlockPool& pool() const { return pool_; }
  const PrefixCache& prefix_cache() const { return cache_; }
  // Checks that the references of all tables and of the prefix cache, and free blocks, add up to
  // the pool, and that no sequence that waits holds blocks. Throws Error{Internal} if not.
  void audit() const;

 private:
  enum class State { Waiting, Running, Parked };
  struct Active {
    Submission request;
    BlockTable table;
    std::vector<TokenId> tokens{};  // prompt and output
    Index longest = 0;              // maximum size of `tokens`
    State state = State::Waiting;
    Index arrival = 0;
    TimeNs waits_since = 0, parked_at = 0;
    std::int64_t waited = 0;         // before waits_since
    Index cached = 0, reached = 0;   // tokens that came from the cache; that were ever in the table
    Index next_output = 0;           // the first position whose output has not been delivered
    PrefixId prefix = kEmptyPrefix;  // prefix of the full blocks; pinned
    std::vector<TokenId> drafts{};
    bool planned = false;       // part of the plan in progress
    bool cancel_asked = false;  // cancel() was called while it was planned

    Index pending() const { return static_cast<Index>(tokens.size()) - table.length(); }
    bool has_room() const { return request.kind != RequestKind::Generate || request.room >= 2; }
    bool is_decoding() const { return request.kind == RequestKind::Generate && pending() == 1; }
    // The last token comes from the model, not from a draft, and each token needs an event.
    Index most_drafts() const {
      const Index left = longest - static_cast<Index>(tokens.size()) - 1;
      return std::max<Index>(0, std::min(request.room - 2, left));
    }
  };
  // A tenant with requests, or one that has been served more than the others.
  struct Tenant {
    double served = 0;  // tokens, weighted by their cost
    Index requests = 0;
  };
  // A plan under construction.
  struct Step {
    StepPlan plan{};
    bool is_full = false;             // no more prefill: some sequence already got none
    Index blocked_class = kNoClass;   // a sequence of this class waits for memory or a place
    std::set<PrefixKey> computing{};  // prefixes whose last block is part of a prefill chunk
  };

  // scheduler.cc
  void check(const Submission& submission) const;
  void commit(Active& active, const PlannedSequence& planned, const SequenceResult& result);
  void share_new_blocks(Active& active, Index first_block);
  void set_prefix(Active& active, PrefixId prefix);
  void release(Active& active);
  void end(Active& active, EndCause cause);
  void enter(Active& active, TimeNs now);
  void leave(const Active& active);
  void serve(const Active& active, Index prefilled, Index generated);

  // scheduler_plan.cc
  void expire(TimeNs now);
  TimeNs stall_time(const Active& active) const;
  Index priority_class(const Active& active, TimeNs now) const;
  std::pair<Index, Index> rank(const Active& active, TimeNs now) const;
  std::vector<Active*> in_order(TimeNs now);
  Index running() const;
  void park_and_resume(const std::vector<Active*>& order, TimeNs now);
  void plan_decodes(Step& step, const std::vector<Active*>& order, TimeNs now);
  Index plan_decode(Step& step, Active& active, Index spare, TimeNs now);
  void plan_prefill(Step& step, const std::vector<Active*>& order, TimeNs now);
  std::vector<Active*> choose_followers(const Step& step, const Active& head,
                                        std::vector<Active*> others, Index rows, TimeNs now);
  bool can_start(const Active& active);
  bool make_ready(Step& step, Active& active, TimeNs now);
  void plan_chunk(Step& step, Active& active, Index most, TimeNs now);
  Index whole_chunk(Index rows) const;
  Index grain() const { return std::min(kChunkTokens, options_.prefill_chunk); }
  Index grant(const Step& step, const Active& active) const;
  bool is_computed_by_another(const Step& step, const Active& active) const;
  void note_computing(Step& step, const Active& active, Index rows) const;
  void add_rows(Step& step, Active& active, Index rows, std::span<const TokenId> drafts);

  // scheduler_memory.cc
  static Index shared_with(const Active& active, const Active& parent);
  Active* parent_of(const Active& active);
  bool waits_for_parent(const Active& active);
  void make_way(const std::vector<Active*>& order, TimeNs now);
  Active* find_loser(const Active& requester, TimeNs now);
  Active* find_rich(const Active& requester, TimeNs now);
  bool start(Active& active, TimeNs now);
  void count_cached(Active& active, Index length);
  void take_shared_blocks(Active& active);
  void take_cached_blocks(Active& active);
  bool reserve(Active& active, Index tokens, std::vector<BlockCopy>& copies, const TimeNs* now);
  Active* find_victim(const Active* requester, TimeNs now);
  void preempt(Active& active, TimeNs now);

  SchedulerOptions options_;
  BlockPool pool_;
  PrefixCache cache_;
  CostModel cost_;
  Index max_length_ = 0;
  std::map<RequestId, Active> active_;
  std::map<std::uint64_t, Tenant> tenants_;  // by salt
  double least_served_ = 0;                  // among tenants with requests; never decreases
  double followers_credit_ = 0;              // tokens that the first sequences left to the others
  std::optional<StepPlan> in_progress_;
  std::vector<Ended> ended_;
  SchedulerCounters totals_;  // without the gauges, which counters() adds
  Index arrivals_ = 0;
};

}  // namespace hone::infer
