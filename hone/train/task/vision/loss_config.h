// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "hone/core/config/config_table.h"

namespace hone::paco {
struct PacoModelOptions;
}

namespace hone::task {

// [loss]: what training minimizes.
struct LossConfig {
  std::string method = "ce";  // supcon, triplet, paco
  Index views = 1;            // per image and step; paco has 2
  double label_smoothing = 0, aux_weight = 1, temperature = 0.1, margin = 0.2;
  std::string on_collapse = "warn";  // off, stop
};

// [paco]: part contrast. docs/config.md explains the keys.
struct PacoConfig {
  std::string preset = "exact";  // none, compat, robust
  Index parts = 4, dim = 64, window = 5;
  bool caps = true, joint_views = false, repeat_peaks = false;
  std::string stage = "last", saliency = "attention", suppression = "window";
  double suppression_fraction = 0.1;
  Index refresh_every = 1;
  double lambda_pac = 1, eta_soc = 0.1, alpha = 0.2, beta = 0.05, gamma = 0.1;
  std::string ce_weight = "detached", ce_views = "each", pool = "distinct";
  bool mask_owner = true, mask_class = true;
  std::string mining = "semi_hard";
  Index screen_top_m = 0;
  std::string hinge = "relu", distance_scale = "sqrt_dim";
  std::string delta = "relative";
  double delta_floor = 2e-5, match_floor = 0, rho = 1, pooled = 0;
  bool metric_grad = true;
  std::string match_metric = "mahalanobis", solver = "auto";
  Index warm_up_epochs = 3;
  std::string soc_metric = "frobenius", soc_scale = "trace";
  double soc_epsilon = 1e-5;
  std::string prototype = "full", prototype_init = "skip";
  double prototype_momentum = 0.9;
};

void add_entries(ConfigEntries& entries, LossConfig& loss);
// `loss` decides whether they have an effect.
void add_entries(ConfigEntries& entries, PacoConfig& paco, const LossConfig& loss);
// Throws Error{InvalidArgument} that names the key if a value is invalid.
void check_config(const LossConfig& loss);
void check_config(const PacoConfig& paco);

// Returns "key=value" for every key that a preset of [paco] sets, including keys of other sections.
// "exact" has the default values.
std::span<const std::string_view> preset_settings(std::string_view preset);

// Sets all but backbone and classes.
paco::PacoModelOptions model_options(const PacoConfig& paco, const LossConfig& loss);

}  // namespace hone::task
