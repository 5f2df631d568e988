// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/distill_config.h"

#include "hone/core/check.h"
#include "hone/train/loss/distillation.h"

namespace hone::trainer {

void add_entries(ConfigEntries& entries, DistillConfig& distill, const std::string& kind) {
  const EntryAdder add{entries};
  const bool has_none = distill.teacher.empty();
  add("distill.teacher", &distill.teacher, concat("model to learn from: ", kind, "; empty: none"));
  add("distill.temperature", &distill.temperature,
      "T: the distributions of teacher and model are compared at logits / T");
  add.ignored_if(has_none, "an empty distill.teacher");
  add("distill.alpha", &distill.alpha,
      "share of the soft loss, T^2 times the KL divergence from the teacher's distribution; the "
      "rest is the loss on the data");
  add.ignored_if(has_none, "an empty distill.teacher");
  add("distill.control", &distill.control,
      "whether the same model is also trained without the teacher, in the folder control/ of the "
      "run, for comparison",
      false);
  add.ignored_if(has_none, "an empty distill.teacher");
}

void check_config(const DistillConfig& distill) {
  loss::check_options({.temperature = distill.temperature, .alpha = distill.alpha});
}

}  // namespace hone::trainer
