// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hone/core/config/config_table.h"
#include "hone/train/amp/amp_config.h"
#include "hone/train/trainer/task_fwd.h"

namespace hone::trainer {

// [amp] and [trainer]: the keys that every job has.
struct TrainerConfig {
  Index steps = 1750, micro_batch = 8, accumulation_steps = 1;
  double clip_norm = 1.0, clip_value = 0, ema_decay = 0;
  std::string clip_norm_type = "2";
  bool keep_zeros = false;
  Index seed = 0;
  Index validate_every = 200, checkpoint_every = 200, keep_checkpoints = 2;
  std::string device = "cpu";
  Index max_memory_mb = 0;
  std::string tf32 = "default", export_step = "last";
  bool skip_nonfinite = false;
  Index max_skipped_steps = amp::kMaxSkippedSteps;
  std::vector<std::string> metrics = {"csv"};
  Index recompute_every = 0;
  amp::AmpConfig amp{};
};

// Words of a job for descriptions of keys: its samples ("windows"), the effects of the seed and of
// the memory limit, and what it can recompute ("layer").
struct TrainerWords {
  std::string_view samples, seed, max_memory, parts;
};
// The last entry is trainer.recompute_every.
void add_entries(ConfigEntries& entries, TrainerConfig& trainer, const TrainerWords& words);
// Throws Error{InvalidArgument} that names the key if a value is out of range.
void check_config(const TrainerConfig& trainer);
// trainer.clip_norm_type as the number that it is.
double norm_type_of(const std::string& clip_norm_type);
// Returns trainer.device. Throws Error{InvalidArgument} if it does not name a device.
c10::Device device_of(const TrainerConfig& trainer);
// Lets products on CUDA round fp32 operands to TF32, or not, as trainer.tf32 says.
void apply_tf32(const TrainerConfig& trainer);
// trainer.max_memory_mb in bytes; 0: no limit.
Index max_memory_bytes(const TrainerConfig& trainer);

}  // namespace hone::trainer
