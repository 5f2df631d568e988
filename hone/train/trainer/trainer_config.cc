// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/trainer_config.h"

#include <ATen/Context.h>

#include <array>
#include <charconv>
#include <limits>
#include <system_error>

#include "hone/core/check.h"
#include "hone/train/device.h"
#include "hone/train/trainer/metrics_sinks.h"

namespace hone::trainer {
namespace {

constexpr std::array<std::string_view, 3> kTf32{"default", "on", "off"};
constexpr std::array<std::string_view, 2> kExports{"last", "best"};

}  // namespace

void add_entries(ConfigEntries& entries, TrainerConfig& trainer, const TrainerWords& words) {
  const EntryAdder add{entries};
  add_entries(entries, trainer.amp);
  add("trainer.steps", &trainer.steps,
      "optimizer steps; --minutes replaces it. May change on resume if the learning rates of "
      "completed steps stay the same",
      false);
  add("trainer.micro_batch", &trainer.micro_batch, concat(words.samples, " per forward pass"));
  add("trainer.accumulation_steps", &trainer.accumulation_steps,
      "forward passes per optimizer step");
  add("trainer.clip_norm", &trainer.clip_norm, "maximum global gradient norm; 0: no limit");
  add.ignored_if(trainer.clip_value > 0, concat("trainer.clip_value = ", trainer.clip_value));
  add("trainer.clip_norm_type", &trainer.clip_norm_type,
      "p of the gradient norm, for clipping and in the metrics: a number above 0, or inf for the "
      "largest magnitude");
  add("trainer.clip_value", &trainer.clip_value,
      "maximum magnitude of each gradient element, instead of trainer.clip_norm; 0: no limit");
  add("trainer.ema_decay", &trainer.ema_decay,
      "decay of a moving average of the weights, which is then validated and exported: average <- "
      "decay * average + (1 - decay) * weight, with a decay that grows from 0.1 to this value; 0: "
      "no average");
  add("trainer.keep_zeros", &trainer.keep_zeros,
      "whether weights of linear layers and convolutions that are 0 when the run begins, such as "
      "those of a pruned model, stay 0");
  add("trainer.seed", &trainer.seed, std::string(words.seed));
  add("trainer.validate_every", &trainer.validate_every,
      "steps between validations; 0: only at the end");
  add("trainer.checkpoint_every", &trainer.checkpoint_every,
      "steps between checkpoints; 0: only at the end", false);
  add("trainer.keep_checkpoints", &trainer.keep_checkpoints,
      "number of newest checkpoints to keep, besides the best one", false);
  add("trainer.device", &trainer.device,
      "device to train on: cpu; cuda, which is cuda:0; or cuda:N", false);
  add("trainer.max_memory_mb", &trainer.max_memory_mb, std::string(words.max_memory));
  add("trainer.tf32", &trainer.tf32,
      "on CUDA: on or off for products and convolutions whose fp32 operands are rounded to TF32, "
      "10 bits of mantissa, for Tensor Cores; default: as LibTorch sets it, for convolutions only",
      false);
  add.ignored_if(trainer.device == "cpu", "trainer.device = cpu");
  add("trainer.export", &trainer.export_step,
      "the step whose weights the model gets: last, or best, the one with the least held-out loss "
      "among the last and the best validated one",
      false);
  add("trainer.skip_nonfinite", &trainer.skip_nonfinite,
      "skip steps whose gradient is not finite, as amp.precision fp16 always does; false: such a "
      "step ends the run",
      false);
  add("trainer.max_skipped_steps", &trainer.max_skipped_steps,
      "number of consecutive skipped steps that ends the run", false);
  add.ignored_if(!trainer.skip_nonfinite && trainer.amp.precision != "fp16",
                 "trainer.skip_nonfinite = false");
  add("trainer.metrics", &trainer.metrics,
      "where to write the metrics of each step: csv (always), jsonl, tensorboard", false);
  add("trainer.recompute_every", &trainer.recompute_every,
      concat("every k-th ", words.parts,
             " (0, k, 2k, ...) keeps only its inputs and is recomputed in the backward pass; "
             "results are bit-identical; 0: none"),
      false);
}

void check_config(const TrainerConfig& trainer) {
  check_range("trainer.steps", trainer.steps, 1, Index{1} << 40);
  check_range("trainer.micro_batch", trainer.micro_batch, 1, 1 << 20);
  check_range("trainer.accumulation_steps", trainer.accumulation_steps, 1, 1 << 20);
  check_range("trainer.clip_norm", trainer.clip_norm, 0, 1e30);
  check_range("trainer.clip_value", trainer.clip_value, 0, 1e30);
  static_cast<void>(norm_type_of(trainer.clip_norm_type));
  check_range("trainer.ema_decay", trainer.ema_decay, 0, 0.999999);
  HONE_CHECK(!trainer.keep_zeros || trainer.ema_decay == 0, "trainer.keep_zeros",
             "false with a trainer.ema_decay above 0", "true");
  check_config(trainer.amp);
  check_range("trainer.seed", trainer.seed, 0, std::numeric_limits<Index>::max());
  check_range("trainer.validate_every", trainer.validate_every, 0, Index{1} << 40);
  check_range("trainer.checkpoint_every", trainer.checkpoint_every, 0, Index{1} << 40);
  check_range("trainer.keep_checkpoints", trainer.keep_checkpoints, 1, 10000);
  static_cast<void>(device_of(trainer));
  check_range("trainer.max_memory_mb", trainer.max_memory_mb, 0, Index{1} << 30);
  check_choice("trainer.tf32", trainer.tf32, kTf32);
  check_choice("trainer.export", trainer.export_step, kExports);
  check_range("trainer.max_skipped_steps", trainer.max_skipped_steps, 1, Index{1} << 40);
  static_cast<void>(parse_metrics_formats(trainer.metrics));
  check_range("trainer.recompute_every", trainer.recompute_every, 0, 512);
}

double norm_type_of(const std::string& clip_norm_type) {
  const char* end = clip_norm_type.data() + clip_norm_type.size();
  double number = 0;
  const auto read = std::from_chars(clip_norm_type.data(), end, number);
  HONE_CHECK(read.ec == std::errc() && read.ptr == end && number > 0, "trainer.clip_norm_type",
             "a number above 0 or inf", clip_norm_type);
  return number;
}

c10::Device device_of(const TrainerConfig& trainer) {
  return parse_device("trainer.device", trainer.device);
}

Index max_memory_bytes(const TrainerConfig& trainer) { return trainer.max_memory_mb << 20; }

void apply_tf32(const TrainerConfig& trainer) {
  if (trainer.tf32 == "default") return;
  const bool on = trainer.tf32 == "on";
  at::globalContext().setAllowTF32CuBLAS(on);
  at::globalContext().setAllowTF32CuDNN(on);
}

}  // namespace hone::trainer
