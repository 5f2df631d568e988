// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "hone/app/generate.h"
#include "hone/cli/command.h"

namespace hone::cli {

// How weights are loaded, as selected by `--weights` and `--pack-cache`.
struct WeightChoice {
  std::string format = "file";
  std::filesystem::path pack_cache;

  infer::WeightOptions options() const;
};
// `choice` must outlive parsing.
void add_weight_options(CLI::App& verb, WeightChoice& choice);

}  // namespace hone::cli
