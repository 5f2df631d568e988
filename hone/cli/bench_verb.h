// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "hone/bench/bench_gemm.h"
#include "hone/bench/bench_run.h"
#include "hone/cli/command.h"

namespace hone::cli {

// The work of a bench: measures its cases and adds them to `run`.
using BenchJob = std::function<void(bench::BenchRun& run, Measurer& measurer)>;

// Adds `hone bench <name>` with --quick and --repeat. Its callback runs the job and prints the
// table or the document. Returns the subcommand, so that the caller can add the job's own options.
CLI::App* add_bench_verb(CLI::App& bench, Context& context, const std::string& name,
                         const std::string& help, BenchJob job);

// In hone-torch alone; null in `hone`, where rows of LibTorch say "absent".
[[gnu::weak]] bench::GemmContestants torch_gemm_contestants();

}  // namespace hone::cli
