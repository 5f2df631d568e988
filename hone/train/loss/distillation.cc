// SPDX-License-Identifier: Apache-2.0
#include "hone/train/loss/distillation.h"

#include <ATen/ATen.h>

#include <string_view>

#include "hone/core/check.h"

namespace hone::loss {
namespace {

using torch::Tensor;

constexpr std::string_view kDistillation = "distillation";
constexpr std::int64_t kIgnored = -1;

void check_operands(const Tensor& student, const Tensor& teacher, const Tensor& targets,
                    const DistillationOptions& options) {
  HONE_CHECK(student.dim() == 2 && student.is_floating_point(), kDistillation,
             "logits [rows, classes] of the student", c10::str(student.sizes()));
  if (teacher.defined()) {
    HONE_CHECK(teacher.sizes() == student.sizes() && teacher.is_floating_point(), kDistillation,
               concat("logits of the teacher ", c10::str(student.sizes())),
               c10::str(teacher.sizes()));
  } else {
    HONE_REQUIRE(options.alpha == 0, kDistillation,
                 "There are no logits of a teacher, and alpha is above 0.");
  }
  if (!targets.defined()) return;
  HONE_CHECK(targets.scalar_type() == at::kLong && targets.sizes().equals({student.size(0)}),
             kDistillation, concat("int64 targets [", student.size(0), "]"),
             concat(at::toString(targets.scalar_type()), " ", c10::str(targets.sizes())));
}

// Logits of 16 bits would round what two distributions differ in.
Tensor widened(const Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
}

}  // namespace

void check_options(const DistillationOptions& options) {
  HONE_CHECK(options.temperature > 0 && options.temperature <= 1e6, "distill.temperature",
             "a number above 0, at most 1e6", options.temperature);
  HONE_CHECK(options.alpha >= 0 && options.alpha <= 1, "distill.alpha", "0 to 1", options.alpha);
}

DistillationSums distillation_sums(const Tensor& student, const Tensor& teacher,
                                   const Tensor& targets, const DistillationOptions& options) {
  check_options(options);
  check_operands(student, teacher, targets, options);
  const Tensor logits = widened(student);
  const double temperature = options.temperature;
  DistillationSums out{.rows = student.size(0)};
  Tensor counts;
  if (targets.defined()) {
    counts = targets.ge(0);
    out.rows = counts.sum().item<Index>();
    out.hard = at::cross_entropy_loss(logits, targets.clamp_min(kIgnored), {}, at::Reduction::Sum,
                                      kIgnored, options.label_smoothing);
  }
  if (options.alpha > 0 || !targets.defined()) {
    const Tensor wanted = at::log_softmax(widened(teacher.detach()) / temperature, 1);
    const Tensor got = at::log_softmax(logits / temperature, 1);
    const Tensor rows = (wanted.exp() * (wanted - got)).sum(1);
    out.soft = (counts.defined() ? rows.masked_fill(counts.logical_not(), 0) : rows).sum() *
               (temperature * temperature);
  }
  if (!out.hard.defined()) {
    out.total = out.soft;
  } else if (!out.soft.defined()) {
    out.total = out.hard;
  } else {
    out.total = options.alpha * out.soft + (1 - options.alpha) * out.hard;
  }
  return out;
}

}  // namespace hone::loss
