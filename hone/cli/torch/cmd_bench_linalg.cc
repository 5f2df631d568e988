// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/bench_linalg.h"
#include "hone/cli/bench_verb.h"

namespace hone::cli {

void add_bench_linalg(CLI::App& bench, Context& context) {
  const auto options = std::make_shared<bench::BenchLinalgOptions>();
  CLI::App* verb =
      add_bench_verb(bench, context, "linalg",
                     "Measure time and errors of randomized linear algebra, LAPACK and LibTorch",
                     [&context, options](bench::BenchRun& run, Measurer&) {
                       options->threads = context.common.threads;
                       bench::bench_linalg(*options, run);
                     });
  verb->add_option("--op", options->ops, "Operations: rsvd, cqrrpt, qrcp, lstsq, srht, sparse")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--shape", options->shapes,
                   "Rows x columns of the matrices (default: one for each operation)")
      ->delimiter(',');
  verb->add_option("--rank", options->rank,
                   "Number of singular triplets for rsvd, and of values that srht keeps per row")
      ->capture_default_str();
  verb->add_option("--dtype", options->dtypes, "Element types: f32, f64")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--spectrum", options->spectra,
                   "Singular values: gaussian, power (1/j), step (1 up to the rank, then 0.01)")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--against", options->against,
                   "Compare with svd, svd_lowrank, qr, geqp3 (SciPy in its own process), gelsy, "
                   "dense, loop, sparse_mm; each operation uses those that do the same work")
      ->delimiter(',')
      ->capture_default_str();
}

}  // namespace hone::cli
