// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/bench_layers.h"
#include "hone/cli/bench_verb.h"
#include "hone/cli/validators.h"

namespace hone::cli {
namespace {

void add_work(CLI::App& verb, bench::BenchLayersOptions& options) {
  verb.add_option("--shape", options.shapes,
                  "Inputs x outputs of linear layers (default: 4096x4096)")
      ->delimiter(',');
  verb.add_option("--conv", options.convs,
                  "Convolutions as inputs x outputs : kernel : stride : padding : height x width")
      ->delimiter(',');
  verb.add_option("--batch", options.batches,
                  "Rows or images per pass (default: 1,64,256; for --pass memory 32,64,128,256; "
                  "for convolutions 4)")
      ->delimiter(',');
  verb.add_option("--rank", options.ranks,
                  "Ranks of the two factors (default: a quarter of the break-even rank)")
      ->delimiter(',');
  verb.add_option("--terms", options.terms,
                  "Numbers of terms of sketched layers, each combined with each --low-rank")
      ->delimiter(',');
  verb.add_option("--low-rank", options.low_ranks,
                  "Low ranks of the terms; the rank of a layer is 2 * terms * low-rank")
      ->delimiter(',');
  verb.add_option("--grid", options.grid,
                  "Predefined layers: tutorial: 36 layers of 1024x512 with a batch of 128; "
                  "reference: 16 layers compared with bmm, with geometric means")
      ->check(not_empty());
  verb.add_option("--step", options.step,
                  "Measure training steps of a model of this shape (llama-1b, llama-160m) with "
                  "--batch sequences of 128 tokens (default: 4), and with MLPs of half the bytes")
      ->check(not_empty());
}

}  // namespace

void add_bench_layers(CLI::App& bench, Context& context) {
  const auto options = std::make_shared<bench::BenchLayersOptions>();
  CLI::App* verb = add_bench_verb(bench, context, "layers",
                                  "Measure factored layers, dense layers and the published formula",
                                  [&context, options](bench::BenchRun& run, Measurer&) {
                                    options->threads = context.common.threads;
                                    options->seed = context.common.seed.value_or(0);
                                    bench::bench_layers(*options, run);
                                  });
  add_work(*verb, *options);
  verb->add_option("--mode", options->modes,
                   "Layers to measure: sketched, lowrank, frozen_f32, frozen_bf16, frozen_int8, or "
                   "frozen for all three (default: sketched,lowrank; with --grid, sketched)")
      ->delimiter(',');
  verb->add_option("--fit", options->fits,
                   "How layers approximate the dense weight: random, projection, svd (default: "
                   "projection,svd)")
      ->delimiter(',');
  verb->add_option("--pass", options->passes,
                   "Passes to measure: forward, train, memory (default: forward)")
      ->delimiter(',');
  verb->add_option("--against", options->against,
                   "Compare with dense, dense_hone, bmm (default: dense,dense_hone; with --grid "
                   "reference also bmm)")
      ->delimiter(',');
  verb->add_flag("--cold", options->cold, "Flush the caches before each run");
  verb->add_option("--matmul", options->matmul,
                   "Library for hone's f32 matrix products: onednn, mkl, or auto (onednn on "
                   "AVX-512 processors that are not Intel's)")
      ->capture_default_str();
  verb->add_option("--plots", options->plots, "Folder for charts and tables")->check(not_empty());
}

}  // namespace hone::cli
