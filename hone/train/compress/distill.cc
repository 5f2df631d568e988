// SPDX-License-Identifier: Apache-2.0
#include "hone/train/compress/distill.h"

#include <ATen/ATen.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "hone/compress/quality/block_bootstrap.h"
#include "hone/core/check.h"
#include "hone/core/text_format.h"
#include "hone/train/optim/adam.h"
#include "hone/train/random_state.h"
#include "hone/train/surgery/evaluation_scope.h"

namespace hone::nn {
namespace {

using torch::Tensor;

constexpr std::string_view kDistill = "distill";
constexpr std::size_t kFinalSteps = 10;

Index count_parameters(const torch::nn::Module& module) {
  Index count = 0;
  for (const Tensor& parameter : module.parameters()) count += parameter.numel();
  return count;
}

// The parameters and buffers of a model as they were.
class StateCopy {
 public:
  explicit StateCopy(const torch::nn::Module& module) {
    for (const auto& tensors : {module.parameters(), module.buffers()}) {
      for (const Tensor& tensor : tensors) copies_.emplace_back(tensor, tensor.detach().clone());
    }
  }
  void restore() const {
    const at::NoGradGuard no_grad;
    for (const auto& [tensor, copy] : copies_) tensor.copy_(copy);
  }

 private:
  std::vector<std::pair<Tensor, Tensor>> copies_;
};

Tensor logit_rows(const Tensor& outputs) {
  HONE_CHECK(outputs.dim() >= 2, kDistill, "outputs [rows, classes]", c10::str(outputs.sizes()));
  return outputs.reshape({-1, outputs.size(-1)});
}

Tensor target_rows(const Tensor& targets) {
  return targets.defined() ? targets.reshape({-1}) : targets;
}

class Distillation {
 public:
  Distillation(ModuleCall teacher, ModuleCall student, const DistillData& data,
               const DistillOptions& options)
      : teacher_(std::move(teacher)), student_(std::move(student)), data_(data), options_(options) {
    loss::check_options(options.loss);
    HONE_CHECK(options.steps >= 1, kDistill, "at least one step", options.steps);
    HONE_REQUIRE(data.batch != nullptr, kDistill, "There are no batches.");
  }

  // Trains for all steps with this share of the soft loss.
  DistillRun train(double alpha) {
    loss::DistillationOptions loss = options_.loss;
    loss.alpha = alpha;
    torch::manual_seed(options_.seed);
    const auto optimizer = make_optimizer();
    DistillRun run;
    for (Index step = 0; step < options_.steps; ++step) {
      optimizer->zero_grad();
      take_step(data_.batch(step), loss, run).backward();
      HONE_CHECK(std::isfinite(run.total.back()), kDistill, concat("a finite loss in step ", step),
                 run.total.back());
      optimizer->step();
    }
    const std::size_t last = std::min(kFinalSteps, run.total.size());
    run.final_loss =
        std::accumulate(run.total.end() - static_cast<std::ptrdiff_t>(last), run.total.end(), 0.0) /
        static_cast<double>(last);
    return run;
  }

  // Measures the student on the held-out rows, and returns which of them it has right.
  std::vector<bool> measure(DistillRun& run) const {
    const at::NoGradGuard no_grad;
    const EvaluationScope evaluation(student_.module());
    std::vector<bool> right;
    double nats = 0;
    Index rows = 0, same = 0, count = 0;
    for (const DistillBatch& batch : data_.held_out) {
      const Tensor logits = logit_rows(student_(batch.inputs));
      const Tensor best = logits.argmax(1);
      same += best.eq(logit_rows(teacher_(batch.inputs)).argmax(1)).sum().item<Index>();
      rows += best.numel();
      if (!batch.targets.defined()) continue;
      const auto sums =
          loss::distillation_sums(logits, {}, target_rows(batch.targets), {.alpha = 0});
      nats += sums.hard.item<double>();
      count += sums.rows;
      const Tensor targets = target_rows(batch.targets).to(at::kCPU);
      const Tensor hits = best.to(at::kCPU).eq(targets).index({targets.ge(0)});
      for (Index i = 0; i < hits.numel(); ++i) right.push_back(hits[i].item<bool>());
    }
    if (rows > 0) run.agreement = static_cast<double>(same) / static_cast<double>(rows);
    if (count == 0) return right;
    run.held_out_loss = nats / static_cast<double>(count);
    run.accuracy =
        static_cast<double>(std::ranges::count(right, true)) / static_cast<double>(count);
    return right;
  }

 private:
  std::shared_ptr<torch::optim::Optimizer> make_optimizer() const {
    std::vector<Tensor> parameters;
    for (const Tensor& parameter : student_.module().parameters()) {
      if (parameter.requires_grad()) parameters.push_back(parameter);
    }
    HONE_CHECK(!parameters.empty(), kDistill, "a student with parameters to train", "none");
    if (options_.optimizer) return options_.optimizer(std::move(parameters));
    return std::make_shared<optim::AdamW>(std::move(parameters),
                                          optim::AdamWOptions().lr(1e-3).weight_decay(0));
  }

  loss::DistillationSums sums_of(const DistillBatch& batch, const Tensor& logits,
                                 const loss::DistillationOptions& options) const {
    const Tensor targets = target_rows(batch.targets);
    if (batch.taught) return loss::top_k_distillation_sums(logits, *batch.taught, targets, options);
    Tensor taught;
    if (options.alpha > 0 || !targets.defined()) {
      const at::NoGradGuard no_grad;
      taught = logit_rows(teacher_(batch.inputs));
    }
    return loss::distillation_sums(logits, taught, targets, options);
  }

  // The loss of a batch; appends to the curves.
  Tensor take_step(const DistillBatch& batch, const loss::DistillationOptions& options,
                   DistillRun& run) const {
    const Tensor logits = logit_rows(student_(batch.inputs));
    const auto sums = sums_of(batch, logits, options);
    HONE_CHECK(sums.rows > 0, kDistill, "a batch in which something counts", sums.rows);
    const auto rows = static_cast<double>(sums.rows);
    const auto add = [&](std::vector<double>& curve, const Tensor& sum) {
      if (sum.defined()) curve.push_back(sum.item<double>() / rows);
    };
    add(run.total, sums.total);
    add(run.soft, sums.soft);
    add(run.hard, sums.hard);
    return sums.total / rows;
  }

  ModuleCall teacher_, student_;
  const DistillData& data_;
  const DistillOptions& options_;
};

void compare(const std::vector<bool>& distilled, const std::vector<bool>& control,
             DistillReport& report) {
  if (distilled.empty()) {
    report.verdict = "There are no held-out targets, so nothing was compared.";
    return;
  }
  std::vector<double> differences;
  for (std::size_t i = 0; i < distilled.size(); ++i) {
    differences.push_back(distilled[i] - control[i]);
  }
  const compress::MeanInterval mean = compress::bootstrap_mean(differences, {.block = 1});
  report.gain = mean.mean;
  report.low = mean.low;
  report.high = mean.high;
  const std::string points = concat(fixed(100 * mean.mean, 2), " points [",
                                    fixed(100 * mean.low, 2), ", ", fixed(100 * mean.high, 2), "]");
  report.verdict = mean.low > 0 ? concat("The teacher helps: the accuracy rises by ", points, ".")
                   : mean.high < 0
                       ? concat("The teacher harms: the accuracy changes by ", points, ".")
                       : concat("With and without the teacher is a tie: ", points, ".");
}

Json run_json(const DistillRun& run) {
  return {{"total_loss", run.total},
          {"soft_loss", run.soft},
          {"hard_loss", run.hard},
          {"final_loss", run.final_loss},
          {"held_out_loss", run.held_out_loss},
          {"accuracy", run.accuracy},
          {"agreement", run.agreement}};
}

}  // namespace

DistillReport distill(const ModuleCall& teacher, const ModuleCall& student, const DistillData& data,
                      const DistillOptions& options) {
  Distillation distillation(teacher, student, data, options);
  const EvaluationScope evaluation(teacher.module());
  const RandomState random(student.module().parameters());
  const StateCopy begin(student.module());
  DistillReport report{.teacher_parameters = count_parameters(teacher.module()),
                       .student_parameters = count_parameters(student.module())};
  try {
    const bool has_targets = data.batch(0).targets.defined();
    std::vector<bool> right_alone;
    if (options.control && has_targets) {
      report.control = distillation.train(/*alpha=*/0);
      right_alone = distillation.measure(*report.control);
      begin.restore();
    }
    report.distilled = distillation.train(options.loss.alpha);
    const std::vector<bool> right = distillation.measure(report.distilled);
    if (report.control) compare(right, right_alone, report);
  } catch (...) {
    begin.restore();
    random.restore();
    throw;
  }
  random.restore();
  if (!report.control) report.verdict = "There is no control, so nothing was compared.";
  return report;
}

Json to_json(const DistillReport& report) {
  return {{"teacher_parameters", report.teacher_parameters},
          {"student_parameters", report.student_parameters},
          {"parameter_ratio", report.ratio()},
          {"distilled", run_json(report.distilled)},
          {"control", report.control ? run_json(*report.control) : Json()},
          {"gain", report.gain},
          {"gain_ci", {report.low, report.high}},
          {"verdict", report.verdict}};
}

}  // namespace hone::nn
