// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/bench_paco.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <tuple>
#include <utility>

#include "hone/bench/torch/optim_contestants.h"
#include "hone/bench/torch/paco_contestants.h"
#include "hone/core/check.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/train/interop.h"
#include "hone/train/memory/memory_meter.h"
#include "hone/train/paco/mining.h"
#include "hone/train/paco/model.h"

namespace hone::bench {
namespace {

using torch::Tensor;

constexpr Index kMostLoopImages = 32, kMostImages = 1024, kMostParts = 64, kMostDim = 1024;
constexpr Index kClasses = 16, kStepImages = 32;
constexpr std::uint64_t kPacoSeed = 7;
constexpr paco::MatchSchedule kMatch{paco::MatchMetric::Mahalanobis, 0};

Tensor make_targets(Index batch) { return at::arange(batch, at::kLong).remainder(kClasses); }

// Parts of two views that resemble each other, so far apart that a good part of the anchors have an
// active hinge and the backward pass has gradients to compute.
PartContrastWork make_work(Index batch, Index parts, Index dim) {
  at::manual_seed(kPacoSeed);
  PartContrastWork work;
  work.z1 = at::randn({batch, parts, dim}, at::kDouble);
  work.z2 = (work.z1 + at::randn_like(work.z1)).requires_grad_();
  work.z1.requires_grad_();
  work.targets = make_targets(batch);
  return work;
}

void clear_gradients(const PartContrastWork& work) {
  work.z1.mutable_grad() = Tensor();
  work.z2.mutable_grad() = Tensor();
}

std::string name_of(const PartContrastWork& work) { return concat("b", work.z1.size(0)); }

// What choosing the negatives allocates, and what the dense formulation stores for it.
Json mining_memory(const PartContrastWork& work) {
  const at::NoGradGuard no_grad;
  const Index batch = work.z1.size(0), parts = work.z1.size(1), dim = work.z1.size(2);
  const Index rows = 2 * batch * parts;
  const auto metric = paco::part_metric(work.z1, work.z2, {});
  const Tensor positive = paco::ridge_distance_sq(metric, work.z1 - work.z2);
  const memory::MemoryMeter meter;
  meter.reset_peak();
  const Index before = meter.use().current;
  paco::mine_negatives(metric, positive, work.targets, {}, {});
  const Index tensors = meter.use().peak - before;
  const Index kernel = kernels::mine_negative_bytes({.batch = batch,
                                                     .parts = parts,
                                                     .rank = metric.factor.size(1),
                                                     .dim = dim,
                                                     .pool_rows = rows},
                                                    libtorch_executor().workers());
  return {{"mining_bytes", tensors + kernel},
          {"mining_kernel_bytes", kernel},
          {"dense_pool_bytes", batch * rows * dim * static_cast<Index>(sizeof(double))}};
}

// The first way is hone's.
BenchCase make_case(const std::string& name, const std::vector<std::string>& ways,
                    const PartContrastWork& work) {
  BenchCase bench_case;
  bench_case.name = name;
  double own = 0;
  for (const std::string& way : ways) {
    const PartContrastRun loss = part_contrast_run(way);
    const double value = loss(work).item<double>();
    if (way == "hone") own = value;
    bench_case.contestants.push_back({.name = way,
                                      .run = [loss, work] { loss(work).backward(); },
                                      .prepare = [work] { clear_gradients(work); }});
    bench_case.ours.push_back(way == "hone");
    Json extra =
        way == "hone" ? mining_memory(work) : Json{{"loss_difference", std::abs(value - own)}};
    extra["loss"] = value;
    if (way == "hone") extra["active_share"] = active_share(work);
    bench_case.extra.push_back(std::move(extra));
  }
  return bench_case;
}

// Loops take seconds, after which caches and the allocator are cold for contestants that take
// milliseconds: they are a case of their own.
void add_part_contrast(const BenchPacoOptions& options, const PartContrastWork& work,
                       BenchRun& run) {
  std::vector<std::string> ways{"hone"};
  std::ranges::copy_if(options.against, std::back_inserter(ways),
                       [](const std::string& way) { return way != "loops"; });
  run.add(make_case(name_of(work) + "/part_contrast", ways, work));
  if (std::ranges::find(options.against, "loops") == options.against.end()) return;
  const bool is_small = work.z1.size(0) <= kMostLoopImages;
  const std::vector<std::string> beside =
      is_small ? std::vector<std::string>{"hone", "loops"} : std::vector<std::string>{};
  BenchCase loops = make_case(name_of(work) + "/loops", beside, work);
  if (!is_small) {
    loops.skipped.emplace_back("loops", concat("more than ", kMostLoopImages, " images"));
  }
  run.add(loops);
}

// All batches in turn.
void add_growth(const std::string& name, const std::vector<PartContrastWork>& works,
                const std::function<PartContrastRun(const PartContrastWork&)>& make_loss,
                BenchRun& run) {
  BenchCase bench_case;
  bench_case.name = "growth/" + name;
  for (const PartContrastWork& work : works) {
    auto& contestants = bench_case.contestants;
    const PartContrastRun loss = make_loss(work);
    contestants.push_back({.name = name_of(work),
                           .run = [loss, work] { loss(work).backward(); },
                           .prepare = [work] { clear_gradients(work); }});
    bench_case.ours.push_back(true);
    const std::size_t last = contestants.size() - 1;
    if (last == 0) continue;
    bench_case.quotients.push_back(
        {concat(contestants[last].name, " / ", contestants[last - 1].name), last, last - 1});
  }
  run.add(bench_case);
}

Tensor losses_of(paco::PacoLoss loss, const Tensor& z1, const Tensor& z2, const Tensor& targets) {
  const auto out = loss->forward(z1, z2, targets);
  return out.pac + 0.1 * out.soc;
}

PartContrastRun make_losses(const PartContrastWork& work) {
  paco::PacoLossOptions options{.classes = kClasses, .dim = work.z1.size(2)};
  options.match = kMatch;
  return [module = paco::PacoLoss(options)](const PartContrastWork& parts) {
    return losses_of(module, parts.z1, parts.z2, parts.targets);
  };
}

// A network, its two views, and where what part contrast adds starts: the last maps, and their
// projected parts.
struct StepWork {
  StepNetwork network;
  paco::PacoModel model{nullptr};
  Tensor view1, view2, targets;
  Tensor map1, map2, z1, z2;
};

std::pair<Tensor, Tensor> sample(StepWork& work) {
  const auto project = [&](const Tensor& map) {
    return work.model->projection->forward(
        paco::sample_parts(map, work.model->options().sampler).parts);
  };
  return {project(work.map1), project(work.map2)};
}

std::shared_ptr<StepWork> make_step_work(const StepNetwork& network,
                                         const BenchPacoOptions& options) {
  at::manual_seed(kPacoSeed);
  paco::PacoModelOptions model{.backbone = {.name = network.name,
                                            .width = network.width,
                                            .channels = 3,
                                            .height = network.side,
                                            .image_width = network.side},
                               .classes = kClasses,
                               .dim = options.dim,
                               .enforce_caps = false,
                               .seed = kPacoSeed};
  model.sampler.parts = options.parts;
  model.loss.match = kMatch;
  auto work = std::make_shared<StepWork>();
  work->network = network;
  work->model = paco::PacoModel(model);
  work->view1 = at::randn({kStepImages, 3, network.side, network.side});
  work->view2 = at::randn_like(work->view1);
  work->targets = make_targets(kStepImages);
  const at::NoGradGuard no_grad;
  work->map1 = work->model->backbone->forward_features(work->view1).requires_grad_();
  work->map2 = work->model->backbone->forward_features(work->view2).requires_grad_();
  std::tie(work->z1, work->z2) = sample(*work);
  work->z1.requires_grad_();
  work->z2.requires_grad_();
  return work;
}

void add_step(const std::shared_ptr<StepWork>& work, BenchRun& run) {
  BenchCase bench_case;
  bench_case.name = concat("step of ", work->network.name, " at ", work->network.side);
  const auto add = [&](const std::string& name, std::function<void()> pass) {
    bench_case.contestants.push_back(
        {.name = name, .run = std::move(pass), .prepare = [work] {
           work->model->zero_grad();
           for (Tensor* leaf : {&work->map1, &work->map2, &work->z1, &work->z2}) {
             leaf->mutable_grad() = Tensor();
           }
         }});
    bench_case.ours.push_back(true);
  };
  add("step", [work] {
    const auto entropy = [&](const Tensor& view) {
      return at::cross_entropy_loss(work->model->backbone->forward(view), work->targets);
    };
    ((entropy(work->view1) + entropy(work->view2)) / 2).backward();
  });
  add("whole loss", [work] {
    const auto [z1, z2] = sample(*work);
    losses_of(work->model->loss, z1, z2, work->targets).backward();
  });
  add("sampling", [work, gradient = at::randn_like(work->z1)] {
    const auto [z1, z2] = sample(*work);
    (z1 + z2).backward(gradient);
  });
  add("losses",
      [work] { losses_of(work->model->loss, work->z1, work->z2, work->targets).backward(); });
  for (const std::size_t i : {1, 2, 3}) {
    bench_case.quotients.push_back({concat(bench_case.contestants[i].name, " / ", bench_case.name),
                                    i, 0, i == 1 ? work->network.most : 0});
  }
  run.add(bench_case);
}

void check(const BenchPacoOptions& options) {
  HONE_CHECK(options.parts > 1 && options.parts <= kMostParts, "bench paco",
             concat("2 to ", kMostParts, " parts"), options.parts);
  HONE_CHECK(options.dim > 0 && options.dim <= kMostDim, "bench paco",
             concat("a dim of 1 to ", kMostDim), options.dim);
  for (const std::string& way : options.against) {
    HONE_CHECK(way != "hone", "bench paco", "dense, operators or loops", way);
    part_contrast_run(way);
  }
  for (const Index batch : options.batches) {
    HONE_CHECK(batch > 1 && batch <= kMostImages, "bench paco",
               concat("batches of 2 to ", kMostImages, " images"), batch);
  }
}

}  // namespace

void bench_paco(const BenchPacoOptions& options, BenchRun& run) {
  check(options);
  set_torch_threads(options.threads > 0 ? options.threads : usable_cpus());
  std::vector<PartContrastWork> works;
  for (const Index batch : options.batches) {
    works.push_back(make_work(batch, options.parts, options.dim));
  }
  // Made first, so that what does not fit a network does not appear after minutes of measuring.
  std::vector<std::shared_ptr<StepWork>> steps;
  for (const StepNetwork& network : options.networks) {
    if (options.whole_step) steps.push_back(make_step_work(network, options));
  }
  for (const PartContrastWork& work : works) add_part_contrast(options, work, run);
  add_growth(
      "part_contrast", works, [](const PartContrastWork&) { return part_contrast_run("hone"); },
      run);
  add_growth("losses", works, make_losses, run);
  for (const auto& step : steps) add_step(step, run);
}

}  // namespace hone::bench
