// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/philox.h"
#include "hone/infer/sched/scheduler.h"
#include "tests/infer/sched/fake_model.h"

namespace hone::test {

inline void require(bool condition, std::string_view what) {
  if (!condition) fail(ErrorCategory::Internal, "simulation", what);
}

// How often the things happened that a simulation should exercise.
struct Coverage {
  Index copies = 0, accepted_drafts = 0, rejected_drafts = 0, ordered_starts = 0, mixed_steps = 0;
  std::map<infer::EndCause, Index> ends{};
  std::map<infer::Refusal, Index> refusals{};
};

// Drives a Scheduler with random events under a virtual clock, and checks every plan against what
// is known from the requests alone.
class Simulation {
 public:
  Simulation(infer::SchedulerOptions options, std::uint64_t seed)
      : options_(std::move(options)), scheduler_(options_), model_(options_.groups), random_(seed) {
    for (int i = 0; i < 4; ++i) shared_.push_back(random_ids(1 + random_.below(3 * kBlockTokens)));
    // Blocks that differ only in what precedes them.
    shared_.push_back(random_ids(kBlockTokens));
    for (int i = 0; i < 2; ++i) {
      const std::vector<TokenId> block(shared_.back().end() - kBlockTokens, shared_.back().end());
      shared_.push_back(shared_.back());
      shared_.back().insert(shared_.back().end(), block.begin(), block.end());
    }
  }

  void run(Index events) {
    for (Index i = 0; i < events; ++i) event();
    drain();
  }

  const infer::Scheduler& scheduler() const { return scheduler_; }
  const Coverage& coverage() const { return coverage_; }

 private:
  static constexpr TokenId kVocab = 50;

  // What is known of a request from outside the scheduler.
  struct Client {
    infer::Submission request;
    Text text{0};  // the prompt and what was emitted
    Index longest = 0, next_output = 0, arrival = 0;
    TimeNs arrived = 0;
    Index ring = 0, used = 0;            // slots of the event ring
    std::uint32_t reading = 1;           // 0: reads nothing
    std::optional<TimeNs> full_since{};  // as seen by plan()
    bool has_relatives = false, was_planned = false, cancel_asked = false, failed = false,
         finished = false;
  };

  bool chance(double probability) { return random_.uniform() < probability; }
  std::vector<TokenId> random_ids(std::uint32_t count) {
    std::vector<TokenId> ids(count);
    for (TokenId& id : ids) id = static_cast<TokenId>(random_.below(kVocab));
    return ids;
  }
  Client* any_client() {
    if (clients_.empty()) return nullptr;
    return &std::next(clients_.begin(), random_.below(static_cast<std::uint32_t>(clients_.size())))
                ->second;
  }

  void event() {
    const std::uint32_t draw = random_.below(100);
    if (draw < 22) {
      submit(nullptr);
    } else if (draw < 26) {
      submit(any_client());
    } else if (draw < 28) {
      cancel();
    } else if (draw < 45) {
      read_events();
    } else if (draw < 47) {
      now_ += random_.below(300'000'000);
    } else {
      step();
    }
  }

  std::vector<TokenId> random_prompt(bool begins_like_others) {
    std::vector<TokenId> ids;
    if (begins_like_others) {
      ids = shared_[random_.below(static_cast<std::uint32_t>(shared_.size()))];
    }
    const std::uint32_t longest = chance(0.1) ? 400 : 50;
    const std::vector<TokenId> tail = random_ids(1 + random_.below(longest));
    ids.insert(ids.end(), tail.begin(), tail.end());
    return ids;
  }

  infer::Submission random_request(const Client* parent, bool has_relatives) {
    infer::Submission request{.id = ++last_id_};
    request.tokens = parent != nullptr ? parent->text.ids : random_prompt(has_relatives);
    request.salt = parent != nullptr ? parent->request.salt : random_.below(2);
    if (parent != nullptr) {
      request.fork_of = parent->request.id;
      if (chance(0.3)) request.tokens.push_back(static_cast<TokenId>(random_.below(kVocab)));
    }
    const auto last = static_cast<Index>(request.tokens.size()) - 1;
    request.first_output = last;
    if (parent == nullptr && chance(0.25)) {
      request.kind = infer::RequestKind::Read;
      if (chance(0.7)) request.first_output = random_.below(static_cast<std::uint32_t>(last + 1));
    } else {
      request.max_tokens = 1 + random_.below(chance(0.2) ? 150 : 20);
      if (chance(0.1)) request.first_output = 0;  // wants the prompt's outputs too
    }
    request.priority = static_cast<infer::Priority>(random_.below(3));
    if (chance(0.1)) request.deadline = now_ - 100'000'000 + random_.below(2'000'000'000);
    return request;
  }

  void submit(Client* parent) {
    if (parent != nullptr) parent->has_relatives = true;
    const bool has_relatives = parent != nullptr || chance(0.5);
    Client client{.request = random_request(parent, has_relatives)};
    client.has_relatives = has_relatives;
    client.text = Text(client.request.salt);
    for (const TokenId id : client.request.tokens) client.text.push(id);
    const auto length = static_cast<Index>(client.request.tokens.size());
    const bool generates = client.request.kind == infer::RequestKind::Generate;
    client.longest = std::min(length + client.request.max_tokens, scheduler_.max_length());
    client.next_output = client.request.first_output;
    client.ring = 2 + random_.below(12);
    client.request.room = client.ring;
    client.reading = chance(0.05) ? 0 : 1 + random_.below(4);
    client.arrived = now_;
    client.arrival = ++arrivals_;
    ++submitted_;
    const std::optional<infer::Refusal> refusal = scheduler_.submit(client.request, now_);
    if (refusal) {
      ++refused_;
      ++coverage_.refusals[*refusal];
      const bool is_long = length + (generates ? 1 : 0) > scheduler_.max_length();
      require(is_long == (*refusal == infer::Refusal::PromptTooLong), "refused for its length");
      return;
    }
    require(!client.request.deadline || *client.request.deadline > now_, "a deadline ahead");
    const RequestId id = client.request.id;
    clients_.emplace(id, std::move(client));
  }

  void cancel() {
    Client* client = any_client();
    if (client == nullptr || chance(0.1)) return scheduler_.cancel(random_.below(1000000));
    client->cancel_asked = true;
    scheduler_.cancel(client->request.id);
    take_ended();
  }

  // Readers take events whenever they like; the engine tells the scheduler before each plan.
  void read_events() {
    for (auto& [id, client] : clients_) {
      client.used = std::max<Index>(0, client.used - random_.below(client.reading + 1));
    }
  }

  void propose_drafts(Client& client) {
    Text text = client.text;
    std::vector<TokenId> drafts;
    for (std::uint32_t i = random_.below(6); i > 0; --i) {
      const TokenId truth = text.next(text.ids.size(), kVocab);
      drafts.push_back(chance(0.75) ? truth : static_cast<TokenId>(random_.below(kVocab)));
      text.push(drafts.back());
    }
    scheduler_.set_drafts(client.request.id, std::move(drafts));
  }

  void step() {
    for (auto& [id, client] : clients_) {
      const Index room = client.ring - client.used;
      scheduler_.set_room(id, room);
      const bool is_full = client.request.kind == infer::RequestKind::Generate && room < 2;
      if (!is_full) client.full_since.reset();
      if (is_full && !client.full_since) client.full_since = now_;
      if (chance(0.5)) propose_drafts(client);
    }
    most_drafts_.clear();
    for (const auto& one : scheduler_.decoding()) most_drafts_[one.id] = one.most_drafts;
    const infer::StepPlan plan = scheduler_.plan(now_);
    take_ended();
    check_alive(plan);
    scheduler_.audit();
    if (plan.empty()) {
      now_ += 1'000'000;
      return;
    }
    check_plan(plan);
    run_plan(plan);
    check_counters();
    scheduler_.audit();
    model_.poison_free(scheduler_.pool());
  }

  // After plan(): deadlines and stalls are served, and something runs unless nothing can.
  void check_alive(const infer::StepPlan& plan) {
    const std::int64_t stall = std::llround(options_.stall_seconds * 1e9);
    for (const auto& [id, client] : clients_) {
      require(!client.request.deadline || *client.request.deadline > now_, "deadlines are kept");
      require(!client.full_since || *client.full_since + 2 * stall > now_, "stalls end");
    }
    const infer::SchedulerCounters counters = scheduler_.counters();
    require(!plan.empty() || (counters.running == counters.parked && counters.waiting == 0),
            "a plan that makes progress");
    require(counters.running - counters.parked <= options_.max_running, "free places");
    check_counters();
  }

  void check_counters() const {
    const infer::SchedulerCounters c = scheduler_.counters();
    require(c.submitted == submitted_ && c.rejected == refused_, "all submissions counted");
    require(c.submitted == c.finished + c.rejected + c.cancelled + c.failed + c.running + c.waiting,
            "counters that add up");
    require(c.running + c.waiting == static_cast<Index>(clients_.size()), "nobody lost");
  }

  // No block is in the tables of two tenants.
  void check_tenants(const infer::StepPlan& plan) const {
    std::map<std::pair<std::size_t, infer::BlockId>, std::uint64_t> tenants;
    for (const infer::PlannedSequence& planned : plan.sequences) {
      const std::uint64_t salt = clients_.at(planned.id).request.salt;
      for (std::size_t g = 0; g < planned.blocks.size(); ++g) {
        for (const infer::BlockId block : planned.blocks[g]) {
          if (block == infer::kNoBlock) continue;
          require(tenants.try_emplace({g, block}, salt).first->second == salt,
                  "one tenant a block");
        }
      }
    }
  }

  void check_plan(const infer::StepPlan& plan) {
    check_tenants(plan);
    Index all_rows = 0, kv_tokens = 0;
    std::set<std::pair<Index, infer::BlockId>> written;
    for (const infer::PlannedSequence& planned : plan.sequences) {
      const Client& client = clients_.at(planned.id);
      const auto rows = static_cast<Index>(planned.tokens.size());
      const Index known = static_cast<Index>(client.text.ids.size()) - planned.first_position;
      check_rows(client, planned);
      all_rows += rows;
      const bool is_even = rows % 16 == 0 || (rows < 16 && (rows & (rows - 1)) == 0);
      require(planned.drafts > 0 || rows == known || is_even, "chunks of 16 times n, 8, 4, 2, 1");
      for (Index i = 0; i < rows; ++i) kv_tokens += planned.first_position + i + 1;
      check_writes(planned, written);
    }
    const StepShape& shape = plan.shape;
    require(shape.decode_rows + shape.prefill_tokens == all_rows, "all rows");
    require(shape.kv_tokens == kv_tokens, "all positions");
    require(all_rows <= options_.max_rows, "no more rows than a step can take");
    require(shape.prefill_tokens <= options_.prefill_chunk, "no more than a chunk");
    if (shape.decode_rows > 0 && shape.prefill_tokens > 0) {
      ++coverage_.mixed_steps;
      require(shape.prefill_tokens <= 1 || plan.predicted_seconds <= target_of(plan) * (1 + 1e-9),
              "a step within the target latency");
    }
    coverage_.copies += static_cast<Index>(plan.copies.size());
    check_order(plan);
  }

  double target_of(const infer::StepPlan& plan) const {
    return std::max(options_.slowdown * plan.decode_seconds, options_.least_target_seconds);
  }

  void check_rows(const Client& client, const infer::PlannedSequence& planned) const {
    const auto rows = static_cast<Index>(planned.tokens.size()) - planned.drafts;
    const auto known = static_cast<Index>(client.text.ids.size());
    require(rows >= 1 && planned.first_position >= 0, "at least one row");
    require(planned.first_position + rows <= known, "rows of the text");
    const auto begin = client.text.ids.begin() + planned.first_position;
    require(std::equal(begin, begin + rows, planned.tokens.begin()), "the tokens of the text");
    require(planned.drafts == 0 || planned.first_position + rows == known, "drafts at the end");
    const auto decoding = most_drafts_.find(planned.id);  // parked ones may have gone on since
    require(decoding == most_drafts_.end() || planned.drafts <= decoding->second,
            "as many drafts as a sequence may have");
    require(known + planned.drafts < client.longest || planned.drafts == 0, "drafts within limits");
    require(client.request.kind != infer::RequestKind::Generate ||
                client.used + planned.drafts + 2 <= client.ring,
            "room for all events and the last one");
    const Index first_output = std::clamp<Index>(client.next_output - planned.first_position, 0,
                                                 static_cast<Index>(planned.tokens.size()));
    require(planned.first_output == first_output, "outputs once and in order");
    require(planned.first_position <= client.next_output, "no output skipped");
  }

  // No sealed block is written, and no block by two sequences. A sequence that was forked in this
  // plan may share its open block, but only with readers of earlier tokens.
  void check_writes(const infer::PlannedSequence& planned,
                    std::set<std::pair<Index, infer::BlockId>>& written) const {
    const Index last = planned.first_position + static_cast<Index>(planned.tokens.size()) - 1;
    for (std::size_t g = 0; g < planned.blocks.size(); ++g) {
      const auto group = static_cast<Index>(g);
      for (Index i = planned.first_position / kBlockTokens; i <= last / kBlockTokens; ++i) {
        const infer::BlockId block = planned.blocks[g].at(static_cast<std::size_t>(i));
        require(scheduler_.pool().is_open(group, block), "an open block");
        require(written.emplace(group, block).second, "one writer per block");
      }
    }
  }

  // The class that a client that has never run had at a time.
  Index priority_class(const Client& client, TimeNs at) const {
    const auto classes =
        std::floor(std::max(0.0, seconds_between(client.arrived, at)) / options_.ageing_seconds);
    const double aged = static_cast<double>(client.request.priority) - classes;
    return static_cast<Index>(std::max(0.0, aged));
  }

  // Whether its class became better so recently that others may have started before.
  bool has_just_risen(const Client& client) const {
    const double waited = seconds_between(client.arrived, now_);
    return waited > options_.ageing_seconds &&
           std::fmod(waited, options_.ageing_seconds) < 0.2 * options_.ageing_seconds;
  }

  // Whether the prompt fits beside what is there.
  bool fits(const Client& client) const {
    const auto length = static_cast<Index>(client.request.tokens.size());
    Index need = infer::kv_peak_bytes(options_.groups, length, options_.max_rows);
    const infer::BlockPool& pool = scheduler_.pool();
    for (Index g = 0; g < pool.groups(); ++g) need += options_.max_running * pool.block_bytes(g);
    return need <= pool.free_bytes() + pool.cached_bytes();
  }

  // Nobody starts while a request of a better class waits that fits, or an earlier one of the same
  // tenant and class that is not longer. Requests whose prompts begin like others are exempt: they
  // may wait until the common part has been computed. (So may all if keys collide.)
  void check_order(const infer::StepPlan& plan) {
    std::vector<const Client*> started;
    for (const infer::PlannedSequence& planned : plan.sequences) {
      Client& client = clients_.at(planned.id);
      if (std::exchange(client.was_planned, true) || client.has_relatives) continue;
      started.push_back(&client);
      ++coverage_.ordered_starts;
    }
    if (options_.extend_key != infer::extend_key) return;
    for (const auto& [id, client] : clients_) {
      if (client.was_planned || client.has_relatives) continue;
      if (has_just_risen(client) || !fits(client)) continue;
      for (const Client* other : started) {
        // The other one may have started at any time since it arrived, and got its tokens now.
        const Index own = priority_class(client, other->arrived);
        const Index theirs = priority_class(*other, now_);
        const bool is_behind = client.arrival > other->arrival ||
                               client.request.salt != other->request.salt ||
                               client.request.tokens.size() > other->request.tokens.size();
        require(own > theirs || (own == theirs && is_behind), "starts in order");
      }
    }
  }

  void run_plan(const infer::StepPlan& plan) {
    std::map<RequestId, Text> texts;
    for (const infer::PlannedSequence& planned : plan.sequences) {
      Text text = clients_.at(planned.id).text;
      const auto drafts = std::span(planned.tokens).last(static_cast<std::size_t>(planned.drafts));
      for (const TokenId id : drafts) text.push(id);
      texts.emplace(planned.id, std::move(text));
    }
    model_.run(plan, [&](RequestId id) -> const Text& { return texts.at(id); });
    if (!is_closed_ && chance(0.1)) submit(chance(0.3) ? any_client() : nullptr);
    if (chance(0.1)) cancel();
    const StepShape& shape = plan.shape;
    const double seconds = 2e-3 + 3e-4 * static_cast<double>(shape.decode_rows) +
                           1e-4 * static_cast<double>(shape.prefill_tokens) +
                           1e-6 * static_cast<double>(shape.kv_tokens);
    infer::StepResult result{.seconds = seconds * (0.9 + 0.2 * random_.uniform_double())};
    now_ += std::llround(result.seconds * 1e9);
    const bool is_abandoned = chance(0.01);
    for (const infer::PlannedSequence& planned : plan.sequences) {
      if (!is_abandoned) result.sequences.push_back(result_of(planned, texts.at(planned.id)));
    }
    scheduler_.apply(result);
    take_ended();
  }

  infer::SequenceResult result_of(const infer::PlannedSequence& planned, const Text& guessed) {
    Client& client = clients_.at(planned.id);
    infer::SequenceResult result{.id = planned.id};
    if (chance(0.01)) {
      result.status = infer::StepStatus::NotComputed;
      return result;
    }
    if (chance(0.002)) {
      result.status = infer::StepStatus::Failed;
      client.failed = true;
      return result;
    }
    const Index rows = static_cast<Index>(planned.tokens.size()) - planned.drafts;
    const Index end = planned.first_position + rows;
    const bool completes = end == static_cast<Index>(client.text.ids.size());
    client.next_output = std::max(client.next_output, end);
    if (client.request.kind != infer::RequestKind::Generate) {
      client.finished |= completes;
      return result;
    }
    for (Index i = 0; completes && i <= planned.drafts; ++i) {
      const TokenId id = guessed.next(static_cast<std::size_t>(end + i), kVocab);
      result.tokens.push_back(id);
      client.text.push(id);
      ++client.used;
      result.finished = chance(0.01);  // a stop token or string
      client.finished |=
          result.finished || static_cast<Index>(client.text.ids.size()) >= client.longest;
      const bool is_accepted =
          i < planned.drafts && guessed.ids[static_cast<std::size_t>(end + i)] == id;
      coverage_.accepted_drafts += is_accepted;
      coverage_.rejected_drafts += i < planned.drafts && !is_accepted;
      client.next_output = end + i;
      if (!is_accepted || result.finished) break;
    }
    if (completes) client.next_output = static_cast<Index>(client.text.ids.size()) - 1;
    return result;
  }

  void take_ended() {
    for (const infer::Ended& ended : scheduler_.take_ended()) {
      ++coverage_.ends[ended.cause];
      const auto found = clients_.find(ended.id);
      require(found != clients_.end(), "each request ends once");
      const Client& client = found->second;
      switch (ended.cause) {
        case infer::EndCause::Finished:
          require(client.finished && !client.cancel_asked, "a text that is complete");
          break;
        case infer::EndCause::Cancelled:
          require(client.cancel_asked, "cancelled on request");
          break;
        case infer::EndCause::DeadlinePassed:
          require(client.request.deadline && *client.request.deadline <= now_, "a deadline passed");
          break;
        case infer::EndCause::Stalled:
          require(client.full_since &&
                      *client.full_since + std::llround(options_.stall_seconds * 1e9) <= now_,
                  "a reader that stalled");
          break;
        case infer::EndCause::Failed:
          require(client.failed && !client.cancel_asked, "a failure");
      }
      clients_.erase(found);
    }
    for (const auto& [id, client] : clients_) {
      require(!client.finished && !client.failed, "finished requests end");
    }
  }

  // No more requests come and all readers read: everything ends, and only the prefix cache keeps
  // blocks.
  void drain() {
    is_closed_ = true;
    for (auto& [id, client] : clients_) client.reading = 4;
    for (Index i = 0; !clients_.empty(); ++i) {
      require(i < 100'000, "an end of all requests");
      read_events();
      step();
    }
    require(scheduler_.pool().used_bytes() == scheduler_.pool().cached_bytes(), "no leak");
  }

  infer::SchedulerOptions options_;
  infer::Scheduler scheduler_;
  FakeModel model_;
  PhiloxStream random_;
  std::vector<std::vector<TokenId>> shared_;  // beginnings of prompts, used by both tenants
  std::map<RequestId, Client> clients_;
  std::map<RequestId, Index> most_drafts_;  // before the plan
  TimeNs now_ = 1'000'000'000;
  RequestId last_id_ = 0;
  Index arrivals_ = 0, submitted_ = 0, refused_ = 0;
  bool is_closed_ = false;
  Coverage coverage_;
};

}  // namespace hone::test
