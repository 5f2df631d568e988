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

// Each is defined in its own file, cmd_bench_<name>.cc.
void add_bench_gemm(CLI::App& bench, Context& context);
void add_bench_llm(CLI::App& bench, Context& context);
void add_bench_optim(CLI::App& bench, Context& context);  // needs LibTorch
void add_bench_amp(CLI::App& bench, Context& context);
void add_bench_paco(CLI::App& bench, Context& context);
void add_bench_layers(CLI::App& bench, Context& context);
void add_bench_linalg(CLI::App& bench, Context& context);
void add_bench_attention(CLI::App& bench, Context& context);

// Defined in bench_hone.cc for `hone` and in bench_torch.cc for `hone-torch`.
void add_benches(CLI::App& bench, Context& context);
bench::GemmContestants gemm_contestants();  // without LibTorch, its rows say "absent"

}  // namespace hone::cli
