// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/bench_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string_view>
#include <utility>

#include "hone/bench/torch/attention_contestants.h"
#include "hone/bench/torch/linalg_work.h"
#include "hone/bench/torch/optim_contestants.h"
#include "hone/core/check.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/train/interop.h"
#include "hone/train/memory/memory_meter.h"

namespace hone::bench {
namespace {

using torch::Tensor;

constexpr std::string_view kAttention = "bench attention";
constexpr Index kMostTokens = Index{1} << 17, kMostHeads = 256, kMostHeadDim = 1024;
constexpr Index kMostRandomFeatures = Index{1} << 14, kMostLoopTokens = 2048;
constexpr double kMostGraphBytes = 1 << 30;

nn::FeatureKind parse_kind(const std::string& text) {
  if (text == "softmax") return nn::FeatureKind::Softmax;
  if (text == "relu") return nn::FeatureKind::Relu;
  fail_argument(kAttention, "softmax or relu", text);
}

double peak_mb(const AttentionContestant& contestant, const AttentionShape& shape, bool is_hone) {
  const memory::MemoryMeter meter;
  contestant.clear();
  meter.reset_peak();
  const Index before = meter.use().current;
  contestant.run();
  Index bytes = meter.use().peak - before;
  contestant.clear();
  if (is_hone) {
    bytes += kernels::linear_attention_bytes({.batch = 1,
                                              .heads = shape.heads,
                                              .queries = shape.tokens,
                                              .keys = shape.tokens,
                                              .qk_dim = shape.dim,
                                              .v_dim = shape.dim,
                                              .features = shape.features,
                                              .kind = shape.kind,
                                              .causal = shape.causal},
                                             shape.is_train, libtorch_executor().workers());
  }
  return static_cast<double>(bytes) * 1e-6;
}

// The errors and the memory of one way, and the way itself in the case.
void add_way(const std::string& way, const AttentionWork& work, BenchCase& bench_case) {
  const auto contestant = std::make_shared<AttentionContestant>(way, work);
  const Tensor rows = checked_rows(work.shape);
  Tensor out;
  {
    const at::NoGradGuard no_grad;
    out = contestant->forward().squeeze(0).index_select(0, rows);
  }
  Json facts{{"rel_error", relative_difference(out, exact_attention(work, rows))}};
  if (way != "sdpa") facts["kernel_error"] = relative_difference(out, kernel_attention(work, rows));
  facts["peak_memory_mb"] = peak_mb(*contestant, work.shape, way == "hone");
  bench_case.contestants.push_back(
      {.name = way, .run = [contestant] { contestant->run(); }, .prepare = {}});
  if (work.shape.is_train) {
    bench_case.contestants.back().prepare = [contestant] { contestant->clear(); };
  }
  bench_case.ours.push_back(way == "hone");
  bench_case.extra.push_back(std::move(facts));
}

std::string why_no_loop(const AttentionShape& shape) {
  if (!shape.causal) return "only causal attention has a loop";
  if (shape.tokens > kMostLoopTokens) return concat("more than ", kMostLoopTokens, " tokens");
  if (shape.is_train && loop_graph_bytes(shape) > kMostGraphBytes) {
    return "the states in its graph take more than 1 GiB";
  }
  return "";
}

void add_loop(const std::string& name, const AttentionWork& work, BenchRun& run) {
  BenchCase loop;
  loop.name = name + "/loop";
  const std::string why = why_no_loop(work.shape);
  if (why.empty()) {
    add_way("hone", work, loop);
    add_way("loop", work, loop);
  } else {
    loop.skipped.emplace_back("loop", why);
  }
  run.add(loop);
}

// Times and memory of hone and sdpa over the numbers of tokens.
struct Series {
  std::string impl;
  std::vector<double> sizes = {}, seconds = {}, megabytes = {};
};

void collect(const Json& rows, const std::string& name, Index tokens, std::vector<Series>& all) {
  for (Series& series : all) {
    for (const Json& row : rows) {
      if (row["case"] != name || row["impl"] != series.impl) continue;
      series.sizes.push_back(static_cast<double>(tokens));
      series.seconds.push_back(row["median_ms"].get<double>() * 1e-3);
      series.megabytes.push_back(row["peak_memory_mb"].get<double>());
    }
  }
}

void add_growths(const std::string& name, const std::vector<Series>& all, BenchRun& run) {
  for (const Series& series : all) {
    const auto [least, most] = std::ranges::minmax_element(series.sizes);
    if (series.sizes.empty() || *least == *most) continue;
    run.add_growth({name, series.impl, "time", series.sizes, series.seconds});
    run.add_growth({name, series.impl, "memory", series.sizes, series.megabytes});
  }
}

// All numbers of tokens.
void add_series(const BenchAttentionOptions& options, AttentionShape shape, const std::string& name,
                BenchRun& run) {
  const auto has = [&](const char* way) {
    return std::ranges::find(options.against, way) != options.against.end();
  };
  std::vector<Series> all{{.impl = "hone"}};
  if (has("sdpa")) all.push_back({.impl = "sdpa"});
  for (const Index tokens : options.seqs) {
    shape.tokens = tokens;
    const AttentionWork work = make_attention_work(shape);
    BenchCase bench_case;
    bench_case.name = concat(name, "/t", tokens);
    for (const Series& series : all) add_way(series.impl, work, bench_case);
    if (has("sdpa")) {
      const auto peak = [&](std::size_t i) {
        return bench_case.extra[i]["peak_memory_mb"].get<double>();
      };
      bench_case.extra[0]["memory_over_sdpa"] = peak(0) / peak(1);
    }
    run.add(bench_case);
    collect(run.rows(), bench_case.name, tokens, all);
    if (has("loop")) add_loop(bench_case.name, work, run);
  }
  add_growths(name, all, run);
}

void check_size(const char* what, Index size, Index most) {
  HONE_CHECK(size > 0 && size <= most, kAttention, concat("1 to ", most, " ", what), size);
}

void check(const BenchAttentionOptions& options) {
  for (const Index tokens : options.seqs) check_size("tokens", tokens, kMostTokens);
  for (const Index features : options.features)
    check_size("features", features, kMostRandomFeatures);
  check_size("heads", options.heads, kMostHeads);
  check_size("numbers of a head", options.dim, kMostHeadDim);
  HONE_CHECK(options.norm > 0 && options.norm <= 1e6, kAttention, "a norm above 0, at most 1e6",
             options.norm);
  for (const std::string& kernel : options.kernels) parse_kind(kernel);
  for (const std::string& pass : options.passes) {
    HONE_CHECK(pass == "forward" || pass == "train", kAttention, "forward or train", pass);
  }
  for (const std::string& way : options.against) {
    HONE_CHECK(way == "sdpa" || way == "loop", kAttention, "sdpa or loop", way);
  }
}

}  // namespace

void bench_attention(const BenchAttentionOptions& options, BenchRun& run) {
  check(options);
  set_torch_threads(options.threads > 0 ? options.threads : usable_cpus());
  for (const std::string& pass : options.passes) {
    for (const std::string& kernel : options.kernels) {
      for (const Index features : options.features) {
        const AttentionShape shape{.heads = options.heads,
                                   .dim = options.dim,
                                   .features = features,
                                   .kind = parse_kind(kernel),
                                   .causal = options.causal,
                                   .is_layer = options.layer,
                                   .is_train = pass == "train",
                                   .norm = options.norm};
        add_series(options, shape,
                   concat(options.layer ? "layer" : "core", "/m", features, "/", kernel,
                          options.causal ? "/causal" : "", "/", pass),
                   run);
      }
    }
  }
}

}  // namespace hone::bench
