// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/lr/composed_lr.h"

#include <algorithm>
#include <string>
#include <utility>

#include "hone/train/optim/lr/scheduler_checks.h"

namespace hone::optim {
namespace {

void check_member(const std::string& kind, const torch::optim::Optimizer& optimizer,
                  const SchedulerPtr& member) {
  HONE_CHECK(member != nullptr, kind, "schedulers as members", "a null pointer");
  HONE_CHECK(&member->optimizer() == &optimizer, kind, "members over its own optimizer",
             concat("a ", member->kind(), " over another one"));
}

void check_members(const std::string& kind, const torch::optim::Optimizer& optimizer,
                   const std::vector<SchedulerPtr>& members) {
  HONE_CHECK(!members.empty(), kind, "at least one member", 0);
  for (const SchedulerPtr& member : members) check_member(kind, optimizer, member);
}

// "ChainedLR(WarmupLR, ExponentialLR)"
std::string kind_of(const char* name, const std::vector<SchedulerPtr>& members) {
  std::string text = name;
  const char* before = "(";
  for (const SchedulerPtr& member : members) {
    if (member) text += concat(std::exchange(before, ", "), member->kind());
  }
  return text + (*before == ',' ? ")" : "");
}

}  // namespace

WarmupLR::WarmupLR(torch::optim::Optimizer& optimizer, const WarmupLROptions& options,
                   SchedulerPtr inner)
    : Scheduler(optimizer, inner ? kind_of("WarmupLR", {inner}) : "WarmupLR"),
      options_(options),
      inner_(std::move(inner)) {
  check_count(kind(), "steps", options.steps, 0);
  HONE_CHECK(options.start >= 0 && options.start <= 1, kind(), "start from 0 to 1", options.start);
  if (inner_) check_member(kind(), optimizer, inner_);
  step();
}

double WarmupLR::rate_at(Index step, std::size_t group, double base) const {
  const auto [steps, start, shape] = options_;
  if (step >= steps) return inner_ ? inner_->rate_at(step - steps, group, base) : base;
  if (shape == WarmupShape::Constant) return base * start;
  return base * (start + (1 - start) * static_cast<double>(step) / static_cast<double>(steps));
}

void WarmupLR::apply_momentum(Index step) {
  if (inner_) inner_->apply_momentum(std::max<Index>(0, step - options_.steps));
}

ChainedLR::ChainedLR(torch::optim::Optimizer& optimizer, std::vector<SchedulerPtr> members)
    : Scheduler(optimizer, kind_of("ChainedLR", members)), members_(std::move(members)) {
  check_members(kind(), optimizer, members_);
  step();
}

double ChainedLR::rate_at(Index step, std::size_t group, double base) const {
  for (const SchedulerPtr& member : members_) base = member->rate_at(step, group, base);
  return base;
}

void ChainedLR::apply_momentum(Index step) {
  for (const SchedulerPtr& member : members_) member->apply_momentum(step);
}

SequentialLR::SequentialLR(torch::optim::Optimizer& optimizer, std::vector<SchedulerPtr> members,
                           std::vector<Index> milestones)
    : Scheduler(optimizer, kind_of("SequentialLR", members)),
      members_(std::move(members)),
      milestones_(std::move(milestones)) {
  check_members(kind(), optimizer, members_);
  check_milestones(kind(), milestones_);
  HONE_CHECK(milestones_.size() + 1 == members_.size(), kind(),
             concat(members_.size() - 1, " milestones"), milestones_.size());
  step();
}

std::size_t SequentialLR::member_at(Index step) const {
  return static_cast<std::size_t>(std::upper_bound(milestones_.begin(), milestones_.end(), step) -
                                  milestones_.begin());
}

double SequentialLR::rate_at(Index step, std::size_t group, double base) const {
  const std::size_t member = member_at(step);
  return members_[member]->rate_at(step - begin_of(member), group, base);
}

// Members that are over leave what they set last, members to come what they set first, so that
// momentum, too, depends on the step alone.
void SequentialLR::apply_momentum(Index step) {
  const std::size_t active = member_at(step);
  for (std::size_t i = members_.size(); --i > active;) members_[i]->apply_momentum(0);
  for (std::size_t i = 0; i < active; ++i) {
    members_[i]->apply_momentum(milestones_[i] - 1 - begin_of(i));
  }
  members_[active]->apply_momentum(step - begin_of(active));
}

}  // namespace hone::optim
