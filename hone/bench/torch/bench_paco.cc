// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/bench_paco.h"

#include <ATen/ATen.h>

#include <cmath>

#include "hone/bench/torch/optim_contestants.h"
#include "hone/bench/torch/paco_contestants.h"
#include "hone/core/check.h"
#include "hone/core/cpu_info.h"
#include "hone/train/paco/loss.h"

namespace hone::bench {
namespace {

constexpr Index kMostLoopImages = 32, kMostImages = 1024, kMostParts = 64, kMostDim = 1024;

// Parts of two views that resemble each other, of images of 16 classes.
PartContrastWork make_work(Index batch, Index parts, Index dim) {
  at::manual_seed(7);
  PartContrastWork work;
  work.z1 = at::randn({batch, parts, dim}, at::kDouble);
  work.z2 = (work.z1 + 0.5 * at::randn_like(work.z1)).requires_grad_();
  work.z1.requires_grad_();
  work.targets = at::arange(batch, at::kLong).remainder(16);
  return work;
}

void clear_gradients(const PartContrastWork& work) {
  work.z1.mutable_grad() = torch::Tensor();
  work.z2.mutable_grad() = torch::Tensor();
}

void add_part_contrast(const BenchPacoOptions& options, const PartContrastWork& work,
                       const std::string& batch, BenchRun& run) {
  BenchCase bench_case;
  bench_case.name = batch + "/part_contrast";
  const double own = part_contrast_run("hone")(work).item<double>();
  std::vector<std::string> ways{"hone"};
  for (const std::string& way : options.against) {
    if (way != "loops" || work.z1.size(0) <= kMostLoopImages) ways.push_back(way);
  }
  for (const std::string& way : ways) {
    const PartContrastRun loss = part_contrast_run(way);
    const double value = loss(work).item<double>();
    bench_case.contestants.push_back({.name = way,
                                      .run = [loss, work] { loss(work).backward(); },
                                      .prepare = [work] { clear_gradients(work); }});
    bench_case.ours.push_back(way == "hone");
    Json extra{{"loss", value}};
    if (way != "hone") extra["loss_difference"] = std::abs(value - own);
    bench_case.extra.push_back(std::move(extra));
  }
  run.add(bench_case);
}

void add_whole_loss(const PartContrastWork& work, const std::string& batch, BenchRun& run) {
  BenchCase bench_case;
  bench_case.name = batch + "/whole_loss";
  paco::PacoLossOptions options{.classes = 16, .dim = work.z1.size(2)};
  options.match = {paco::MatchMetric::Mahalanobis, 0};
  paco::PacoLoss module(options);
  bench_case.contestants.push_back({.name = "hone",
                                    .run =
                                        [module, work]() mutable {
                                          const auto out =
                                              module->forward(work.z1, work.z2, work.targets);
                                          (out.pac + 0.1 * out.soc).backward();
                                        },
                                    .prepare = [work] { clear_gradients(work); }});
  bench_case.ours = {true};
  run.add(bench_case);
}

}  // namespace

void bench_paco(const BenchPacoOptions& options, BenchRun& run) {
  HONE_CHECK(options.parts > 1 && options.parts <= kMostParts, "bench paco",
             concat("2 to ", kMostParts, " parts"), options.parts);
  HONE_CHECK(options.dim > 0 && options.dim <= kMostDim, "bench paco",
             concat("a dim of 1 to ", kMostDim), options.dim);
  for (const std::string& way : options.against) {
    HONE_CHECK(way != "hone", "bench paco", "dense, operators or loops", way);
    part_contrast_run(way);
  }
  set_torch_threads(options.threads > 0 ? options.threads : usable_cpus());
  for (const Index batch : options.batches) {
    HONE_CHECK(batch > 1 && batch <= kMostImages, "bench paco",
               concat("batches of 2 to ", kMostImages, " images"), batch);
    const PartContrastWork work = make_work(batch, options.parts, options.dim);
    const std::string name = concat("b", batch);
    add_part_contrast(options, work, name, run);
    add_whole_loss(work, name, run);
  }
}

}  // namespace hone::bench
