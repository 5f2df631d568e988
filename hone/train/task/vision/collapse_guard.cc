// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/collapse_guard.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "hone/core/check.h"
#include "hone/core/log.h"

namespace hone::task {
namespace {

using torch::Tensor;

enum Sum : Index { CrossEntropy, Norms, Hinges, Images, MicroBatches, SumCount };
enum Slot : Index { Epoch, FirstNorm, LastEntropy, ChancePeriods, SilentPeriods, Worst, SlotCount };

constexpr double kSilentShare = 0.005, kShrunkShare = 0.5;
constexpr double kFalls =
    0.998;  // a cross entropy below this share of the last period's is falling
constexpr double kNearChance = 0.98, kOneClassShare = 0.95;
constexpr double kPeriods = 3;

}  // namespace

std::string_view name_of(CollapseVerdict verdict) {
  constexpr auto kNames =
      std::to_array<std::string_view>({"ok", "silent", "shrinking", "collapsed"});
  return kNames[static_cast<std::size_t>(verdict)];
}

CollapseGuard::CollapseGuard(CollapseGuardOptions options)
    : options_(std::move(options)),
      sums_(at::zeros({SumCount}, at::device(options_.device).dtype(at::kDouble))),
      counts_(at::zeros({2, options_.classes}, at::device(options_.device).dtype(at::kLong))),
      memory_(at::zeros({SlotCount}, at::kDouble)) {}

CollapseVerdict CollapseGuard::verdict() const {
  return static_cast<CollapseVerdict>(memory_.const_data_ptr<double>()[Worst]);
}

std::vector<trainer::CheckpointTensor> CollapseGuard::state() {
  return {{"guard.sums", sums_}, {"guard.counts", counts_}, {"guard.memory", memory_}};
}

void CollapseGuard::observe(const Observation& seen) {
  const torch::NoGradGuard no_grad;
  double* const memory = memory_.data_ptr<double>();
  if (static_cast<double>(seen.epoch) > memory[Epoch]) {
    if (is_period()) end_period(options_.stops);
    memory[Epoch] = static_cast<double>(seen.epoch);
  }
  const auto images = static_cast<double>(seen.targets.size(0));
  const auto zero = [&] { return at::zeros({}, sums_.options()); };
  const Tensor entropy = at::cross_entropy_loss(seen.logits.detach().to(at::kDouble), seen.targets,
                                                {}, at::Reduction::Sum);
  const Tensor norms =
      seen.features.defined() ? seen.features.detach().to(at::kDouble).norm(2, {1}).sum() : zero();
  const Tensor hinges = seen.active_share.defined() ? seen.active_share.to(at::kDouble) : zero();
  const Tensor count = at::full({}, images, sums_.options());
  sums_.add_(at::stack({entropy, norms, hinges * images, count, at::ones_like(count)}));
  const Tensor rows = at::stack({seen.logits.argmax(1), seen.targets});
  counts_.add_(at::one_hot(rows, options_.classes).sum(1));
}

bool CollapseGuard::is_period() const {
  return sums_.select(0, MicroBatches).item<double>() >= static_cast<double>(kLeastSteps);
}

void CollapseGuard::finish() {
  if (is_period()) end_period(/*stops=*/false);
}

void CollapseGuard::end_period(bool stops) {
  const Tensor sums = sums_.to(at::kCPU, at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  const Tensor counts = counts_.to(at::kCPU, at::kLong, false, true);
  sums_.zero_();
  counts_.zero_();
  const double* const sum = sums.const_data_ptr<double>();
  double* const memory = memory_.data_ptr<double>();
  const double images = sum[Images], entropy = sum[CrossEntropy] / images;
  const double norm = sum[Norms] / images, chance = std::log(static_cast<double>(options_.classes));
  const Index favorite = counts[0].argmax().item<Index>();
  const double most = counts[0][favorite].item<double>() / images;
  const double own = counts[1][favorite].item<double>() / images;
  const bool is_one_class = most > std::max(kOneClassShare, (1 + own) / 2);
  if (memory[FirstNorm] == 0) memory[FirstNorm] = norm;
  const bool is_warm = memory[Epoch] >= static_cast<double>(options_.warm_up_epochs);
  const bool is_chance = !(entropy < kNearChance * chance) || is_one_class;
  const bool is_silent = options_.contrasts && sum[Hinges] / images < kSilentShare;
  const bool falls = entropy < std::min(chance, kFalls * memory[LastEntropy]);
  memory[LastEntropy] = entropy;
  memory[ChancePeriods] = is_warm && is_chance && !falls ? memory[ChancePeriods] + 1 : 0;
  memory[SilentPeriods] = is_silent ? memory[SilentPeriods] + 1 : 0;
  auto verdict = CollapseVerdict::Ok;
  std::string text;
  if (memory[ChancePeriods] >= kPeriods) {
    verdict = CollapseVerdict::Collapsed;
    text =
        concat("the model predicts by chance (cross entropy ", entropy, " nats, that of chance is ",
               chance, "; ", 100 * most, " % in one class). ", options_.if_collapsed);
  } else if (norm < kShrunkShare * memory[FirstNorm]) {
    verdict = CollapseVerdict::Shrinking;
    text = concat("the features shrink (mean norm ", norm, ", at first ", memory[FirstNorm], "). ",
                  options_.if_shrinking);
  } else if (memory[SilentPeriods] >= kPeriods) {
    verdict = CollapseVerdict::Silent;
    text = concat("part contrast is silent (", 100 * sum[Hinges] / images,
                  " % of its hinges are active). ", options_.if_silent);
  }
  const bool is_new = verdict > std::max(this->verdict(), said_);
  memory[Worst] = std::max(memory[Worst], static_cast<double>(verdict));
  const std::string where = concat("After pass ", memory[Epoch] + 1, " over the images ");
  if (verdict == CollapseVerdict::Collapsed && stops) {
    fail(ErrorCategory::Internal, "train", where + text);
  }
  if (!is_new) return;
  said_ = verdict;
  log_warning(where + text);
}

}  // namespace hone::task
