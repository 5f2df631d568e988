// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "hone/bench/bench_gemm.h"
#include "hone/bench/bench_run.h"
#include "hone/cli/command.h"

namespace hone::cli {

// One bench: its own options fill a job, which measures its cases into a run.
using BenchJob = std::function<void(bench::BenchRun& run, Measurer& measurer)>;

// Adds `hone bench <name>` with --quick and --repeat; its callback runs the job and prints the
// table or the document. Returns the sub-verb for the job's own options.
CLI::App* add_bench_verb(CLI::App& bench, Context& context, const std::string& name,
                         const std::string& help, BenchJob job);

// Each in a file of its own: cmd_bench_<name>.cc.
void add_bench_gemm(CLI::App& bench, Context& context);
void add_bench_llm(CLI::App& bench, Context& context);
void add_bench_optim(CLI::App& bench, Context& context);  // these need LibTorch
void add_bench_amp(CLI::App& bench, Context& context);

// What differs between the two programs, bench_hone.cc and bench_torch.cc; the build picks.
void add_benches(CLI::App& bench, Context& context);
bench::GemmContestants gemm_contestants();  // without LibTorch its rows say "absent"

}  // namespace hone::cli
