// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/distillation.h"

#include <algorithm>
#include <span>
#include <vector>

#include "hone/app/torch/train_run.h"
#include "hone/core/file/sha256.h"
#include "hone/train/trainer/metrics_log.h"

namespace hone::app {
namespace {

constexpr std::size_t kLastSteps = 10;

}  // namespace

std::string hash_of_files(const std::vector<std::filesystem::path>& files) {
  std::string hashes;
  for (const std::filesystem::path& file : files) hashes += sha256_hex(file);
  return sha256_hex_of_text(hashes);
}

void read_final_losses(const std::filesystem::path& out, Distillation& distillation) {
  const std::vector<trainer::MetricsRow> rows = trainer::read_metrics(out / "metrics.csv");
  const auto last = std::span(rows).last(std::min(kLastSteps, rows.size()));
  const auto mean = [&](auto value_of) -> std::optional<double> {
    double sum = 0, count = 0;
    for (const trainer::MetricsRow& row : last) {
      const std::optional<double> value = value_of(row);
      if (value) sum += *value, count += 1;
    }
    return count > 0 ? std::optional(sum / count) : std::nullopt;
  };
  distillation.final_loss =
      mean([](const trainer::MetricsRow& row) { return std::optional(row.loss); });
  distillation.final_soft = mean([](const trainer::MetricsRow& row) { return row.soft; });
  distillation.final_hard = mean([](const trainer::MetricsRow& row) { return row.ce; });
}

Json to_json(const std::optional<Distillation>& distillation) {
  if (!distillation) return {};
  Json control;
  if (const auto& alone = distillation->control) {
    control = {{"val_loss", alone->val_loss},
               {"val_accuracy", to_json(alone->val_accuracy)},
               {"agreement", alone->agreement},
               {"model", alone->model.string()}};
  }
  return {{"teacher", distillation->teacher.string()},
          {"teacher_parameters", distillation->teacher_parameters},
          {"parameter_ratio", distillation->ratio()},
          {"agreement", distillation->agreement},
          {"final_loss", to_json(distillation->final_loss)},
          {"final_soft_loss", to_json(distillation->final_soft)},
          {"final_hard_loss", to_json(distillation->final_hard)},
          {"control", std::move(control)}};
}

}  // namespace hone::app
