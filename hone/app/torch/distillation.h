// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/index.h"

namespace hone::app {

// What a model learned from a teacher.
struct Distillation {
  std::filesystem::path teacher;
  Index teacher_parameters = 0, parameters = 0;
  double agreement = 0;  // share of the held-out predictions that are the teacher's
  // Means over the last ten steps of the log; the last two only while there is a soft loss.
  std::optional<double> final_loss = {}, final_soft = {}, final_hard = {};
  // The same model trained without the teacher, with the same seed and steps.
  struct Control {
    double val_loss = 0, agreement = 0;
    std::optional<double> val_accuracy = {};  // of a classifier
    std::filesystem::path model;
  };
  std::optional<Control> control = {};

  double ratio() const {
    return static_cast<double>(teacher_parameters) / static_cast<double>(parameters);
  }
};

// SHA-256 over the files with a teacher's weights.
std::string hash_of_files(const std::vector<std::filesystem::path>& files);

// Fills in the final losses from metrics.csv in the folder of a run.
void read_final_losses(const std::filesystem::path& out, Distillation& distillation);

// {"teacher", "teacher_parameters", "parameter_ratio", "agreement", "final_loss",
// "final_soft_loss", "final_hard_loss", "control": {"val_loss", "val_accuracy", "agreement",
// "model"} or null}; null without a teacher.
Json to_json(const std::optional<Distillation>& distillation);

}  // namespace hone::app
