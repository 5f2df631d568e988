// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/layer_plan.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "hone/core/check.h"
#include "hone/core/config/nearest_name.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/core/text_format.h"

namespace hone::bench {
namespace {

using Names = std::vector<std::string>;

constexpr std::string_view kBench = "bench layers";
constexpr Index kMostFeatures = Index{1} << 20, kMostNumbers = Index{1} << 28;
constexpr Index kMostBatch = 65536, kMostTerms = 64, kMostRank = 65536, kMostRanks = 128;
constexpr Index kMostChannels = 65536, kMostKernel = 64, kMostSide = 4096;

// The numbers of a text like "4096x4096": each N of the pattern is a whole number, anything else
// stands for itself.
std::optional<std::vector<Index>> read_numbers(std::string_view text, std::string_view pattern) {
  std::vector<Index> numbers;
  const char *at = text.data(), *end = at + text.size();
  for (const char wanted : pattern) {
    if (wanted == 'N') {
      const auto [next, error] = std::from_chars(at, end, numbers.emplace_back());
      if (error != std::errc()) return std::nullopt;
      at = next;
    } else if (at == end || *at++ != wanted) {
      return std::nullopt;
    }
  }
  if (at != end) return std::nullopt;
  return numbers;
}

bool is_in(Index value, Index low, Index high) { return value >= low && value <= high; }

LayerShape parse_shape(const std::string& text) {
  const auto n = read_numbers(text, "NxN");
  const bool good = n && is_in((*n)[0], 1, kMostFeatures) && is_in((*n)[1], 1, kMostFeatures) &&
                    (*n)[0] * (*n)[1] <= kMostNumbers;
  HONE_CHECK(good, kBench,
             concat("a shape as inputs x outputs, for example 4096x4096, of at most ",
                    kMostFeatures, " each and 2^28 numbers"),
             text);
  return {.inputs = (*n)[0], .outputs = (*n)[1]};
}

LayerShape parse_conv(const std::string& text) {
  const auto n = read_numbers(text, "NxN:N:N:N:NxN");
  HONE_CHECK(n.has_value(), kBench,
             "a convolution as inputs x outputs : kernel : stride : padding : height x width, for "
             "example 512x512:3:1:1:64x64",
             text);
  const LayerShape shape{.inputs = (*n)[0],
                         .outputs = (*n)[1],
                         .kernel = (*n)[2],
                         .stride = (*n)[3],
                         .padding = (*n)[4],
                         .height = (*n)[5],
                         .width = (*n)[6]};
  const bool in_range =
      is_in(shape.inputs, 1, kMostChannels) && is_in(shape.outputs, 1, kMostChannels) &&
      is_in(shape.kernel, 1, kMostKernel) && is_in(shape.stride, 1, kMostKernel) &&
      is_in(shape.padding, 0, shape.kernel) && is_in(shape.height, 1, kMostSide) &&
      is_in(shape.width, 1, kMostSide) && shape.dense_numbers() <= kMostNumbers;
  HONE_CHECK(in_range, kBench,
             concat("channels of 1 to ", kMostChannels, ", kernels and strides of 1 to ",
                    kMostKernel, ", a padding of 0 to the kernel, images of 1 to ", kMostSide,
                    " a side and at most 2^28 weights"),
             text);
  HONE_CHECK(std::min(shape.height, shape.width) + 2 * shape.padding >= shape.kernel, kBench,
             "images with padding that are not smaller than the kernel", text);
  return shape;
}

Names or_default(const Names& given, const Names& otherwise) {
  return given.empty() ? otherwise : given;
}

void check_names(const char* option, const Names& names, std::vector<std::string_view> known) {
  for (const std::string& name : names) {
    HONE_REQUIRE(std::ranges::find(known, name) != known.end(), kBench,
                 describe_unknown(option, name, known));
  }
}

std::vector<LayerRank> cross(const std::vector<Index>& terms, const std::vector<Index>& low_ranks) {
  std::vector<LayerRank> ranks;
  for (const Index term : terms) {
    HONE_CHECK(is_in(term, 1, kMostTerms), kBench, concat("terms of 1 to ", kMostTerms), term);
    for (const Index low_rank : low_ranks) {
      HONE_CHECK(is_in(low_rank, 1, kMostRank / 2 / term), kBench,
                 concat("a low rank of 1 to ", kMostRank / 2 / term, " with ", term, " terms"),
                 low_rank);
      ranks.push_back({2 * term * low_rank, term, low_rank});
    }
  }
  return ranks;
}

// Ranks that are the same for all shapes; empty where each shape has a default of its own.
std::vector<LayerRank> given_ranks(const BenchLayersOptions& options) {
  const bool has_terms = !options.terms.empty() || !options.low_ranks.empty();
  if (!options.grid.empty()) {
    HONE_REQUIRE(options.ranks.empty() && !has_terms, kBench,
                 "A grid has its own terms and low ranks.");
    if (options.grid == "tutorial") return cross({2, 4, 6, 8, 12, 16}, {16, 32, 48, 64, 96, 128});
    return cross({1, 2, 4, 8}, {16, 32, 64, 128});
  }
  HONE_REQUIRE(options.ranks.empty() || !has_terms, kBench,
               "Either ranks are given or terms and low ranks.");
  HONE_REQUIRE(options.terms.empty() == options.low_ranks.empty(), kBench,
               "Terms and low ranks are given together.");
  if (has_terms) return cross(options.terms, options.low_ranks);
  std::vector<LayerRank> ranks;
  for (const Index rank : options.ranks) {
    HONE_CHECK(is_in(rank, 1, kMostRank), kBench, concat("a rank of 1 to ", kMostRank), rank);
    ranks.push_back({rank, 1, rank / 2});
  }
  return ranks;
}

LayerRank quarter_of_break_even(const LayerShape& shape) {
  const Index low_rank = std::max<Index>(1, static_cast<Index>(1 / shape.size(1).break_even() / 8));
  return {2 * low_rank, 1, low_rank};
}

void check_lists(const LayerPlan& plan, const BenchLayersOptions& options) {
  check_names("grid", options.grid.empty() ? Names{} : Names{options.grid},
              {"tutorial", "reference"});
  check_names("mode", plan.modes,
              {"sketched", "lowrank", "frozen_f32", "frozen_bf16", "frozen_int8"});
  check_names("fit", plan.fits, {"random", "projection", "svd"});
  check_names("pass", plan.passes, {"forward", "train", "memory"});
  check_names("contestant", plan.against, {"dense", "dense_hone", "bmm"});
  const bool is_sketched = contains(plan.modes, "sketched");
  HONE_REQUIRE(!is_sketched || contains(plan.fits, "random") || contains(plan.fits, "projection"),
               kBench, "Sketched layers are fitted at random or by projection.");
  HONE_REQUIRE(!contains(plan.modes, "lowrank") || contains(plan.fits, "svd"), kBench,
               "Low-rank layers are fitted by svd.");
  HONE_REQUIRE(!contains(plan.against, "bmm") || is_sketched, kBench,
               "The contestant bmm computes sketched layers, so it needs the mode sketched.");
  HONE_REQUIRE(options.plots.empty() ||
                   ((contains(plan.against, "dense") || contains(plan.against, "dense_hone")) &&
                    (contains(plan.passes, "forward") || contains(plan.passes, "train"))),
               kBench, "Plots show the time of a pass beside that of a dense layer.");
}

void check_sizes(const LayerPlan& plan, const LayerJob& job) {
  const LayerShape& shape = job.shape;
  HONE_CHECK(static_cast<Index>(job.ranks.size()) <= kMostRanks, kBench,
             concat("at most ", kMostRanks, " ranks of a shape"), job.ranks.size());
  const bool is_sketched = contains(plan.modes, "sketched");
  Index widest = 0, bytes = 4 * 4 * shape.dense_numbers();
  for (const LayerRank& rank : job.ranks) {
    HONE_CHECK(!is_sketched || rank.rank % 2 == 0, kBench, "an even rank of sketched layers",
               rank.rank);
    const Index copies =
        static_cast<Index>(plan.modes.size()) + (contains(plan.against, "bmm") ? 1 : 0);
    bytes += 4 * copies * shape.size(rank.rank).numbers();
    widest = std::max(widest, rank.rank * shape.output_pixels());
    if (contains(plan.against, "bmm")) widest = std::max(widest, 3 * rank.terms * shape.outputs);
  }
  Index most = 0;
  for (const auto* batches : {&job.batches, &job.memory_batches}) {
    for (const Index batch : *batches) {
      HONE_CHECK(is_in(batch, 1, kMostBatch), kBench, concat("a batch of 1 to ", kMostBatch),
                 batch);
      most = std::max(most, batch);
    }
  }
  bytes += 4 * most *
           (3 * shape.inputs * shape.input_pixels() + 3 * shape.outputs * shape.output_pixels() +
            2 * widest);
  if (bytes <= available_memory_bytes()) return;
  fail(ErrorCategory::Resource, kBench,
       concat("The layers of ", shape.name(), " and a batch of ", most, " need about ",
              format_bytes(bytes), ", more than the ", format_bytes(available_memory_bytes()),
              " that are free."));
}

LayerJob make_job(const BenchLayersOptions& options, const LayerShape& shape) {
  LayerJob job{.shape = shape, .ranks = given_ranks(options), .batches = {}, .memory_batches = {}};
  if (job.ranks.empty()) job.ranks = {quarter_of_break_even(shape)};
  job.batches = job.memory_batches = options.batches;
  if (!options.batches.empty()) return job;
  job.batches = options.grid == "tutorial"    ? std::vector<Index>{128}
                : options.grid == "reference" ? std::vector<Index>{16, 64, 256}
                                              : std::vector<Index>{1, 64, 256};
  if (shape.is_conv()) job.batches = {4};
  job.memory_batches = {32, 64, 128, 256};
  return job;
}

}  // namespace

Index LayerShape::output_pixels() const {
  if (!is_conv()) return 1;
  const auto side = [&](Index length) { return (length + 2 * padding - kernel) / stride + 1; };
  return side(height) * side(width);
}

std::string LayerShape::name() const {
  const std::string channels = concat(inputs, "x", outputs);
  if (!is_conv()) return channels;
  return concat("conv ", channels, ":", kernel, ":", stride, ":", padding, ":", height, "x", width);
}

bool contains(const Names& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

LayerPlan plan_layers(const BenchLayersOptions& options) {
  LayerPlan plan;
  const bool has_grid = !options.grid.empty();
  plan.modes =
      or_default(options.modes, has_grid ? Names{"sketched"} : Names{"sketched", "lowrank"});
  if (const auto frozen = std::ranges::find(plan.modes, "frozen"); frozen != plan.modes.end()) {
    const auto at = plan.modes.erase(frozen);
    const Names all{"frozen_f32", "frozen_bf16", "frozen_int8"};
    plan.modes.insert(at, all.begin(), all.end());
  }
  plan.fits = or_default(options.fits, {"projection", "svd"});
  plan.passes = or_default(options.passes, {"forward"});
  plan.against =
      or_default(options.against, options.grid == "reference" ? Names{"dense", "dense_hone", "bmm"}
                                                              : Names{"dense", "dense_hone"});
  plan.matmul = nn::parse_matmul_backend(options.matmul);
  check_lists(plan, options);
  Names shapes = options.shapes;
  if (shapes.empty() && options.convs.empty()) {
    shapes = {options.grid == "tutorial" ? "1024x512" : "4096x4096"};
  }
  for (const std::string& shape : shapes) {
    plan.jobs.push_back(make_job(options, parse_shape(shape)));
  }
  for (const std::string& conv : options.convs) {
    plan.jobs.push_back(make_job(options, parse_conv(conv)));
  }
  for (const LayerJob& job : plan.jobs) check_sizes(plan, job);
  return plan;
}

}  // namespace hone::bench
