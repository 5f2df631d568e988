// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "hone/core/file/json_io.h"

namespace hone::bench {

// Throws Error{InvalidArgument} if `folder` is a file, or contains anything that
// write_layer_plots() does not write. That function replaces the folder as a whole.
void check_plots_folder(const std::filesystem::path& folder);

// Writes charts and tables of a report of bench_layers into `folder`, all or nothing:
//   landscape.svg  for each timed case: time and memory against numbers, time against terms with a
//                  line for each low rank, and time against low rank with a line for each number of
//                  terms
//   pareto.svg     error against time, with the layers that no other one beats in both
//   layers.csv     the rows; layers.json the report
//   report.html    all of it on a page; report.json its data
void write_layer_plots(const Json& report, const std::filesystem::path& folder);

}  // namespace hone::bench
