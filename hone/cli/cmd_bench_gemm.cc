// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "hone/bench/bench_gemm.h"
#include "hone/cli/bench_verb.h"
#include "hone/cli/validators.h"
#include "hone/core/check.h"

namespace hone::cli {
namespace {

// The options of the command line. Empty ones are chosen by the bench.
struct GemmCommand {
  std::vector<std::string> formats, shapes, against;
  std::vector<Index> rows;
  std::string cache;
};

// Parses "4096x11008" as outputs x depth.
bench::GemmShape parse_shape(const std::string& text) {
  bench::GemmShape shape;
  const char* end = text.data() + text.size();
  const auto outputs = std::from_chars(text.data(), end, shape.outputs);
  const bool has_cross = outputs.ec == std::errc() && outputs.ptr != end && *outputs.ptr == 'x';
  const auto depth = std::from_chars(has_cross ? outputs.ptr + 1 : end, end, shape.depth);
  HONE_CHECK(depth.ec == std::errc() && depth.ptr == end && shape.outputs > 0 && shape.depth > 0,
             "--shape", "OUTPUTSxDEPTH, such as 4096x4096", text);
  return shape;
}

// "torch" selects every contestant whose name begins with "torch_".
bench::GemmContestants choose_contestants(const std::vector<std::string>& names) {
  const bench::GemmContestants known = torch_gemm_contestants != nullptr
                                           ? torch_gemm_contestants()
                                           : bench::absent_gemm_contestants();
  bench::GemmContestants chosen;
  for (const std::string& name : names) {
    const std::size_t before = chosen.size();
    std::ranges::copy_if(known, std::back_inserter(chosen), [&](const auto& contestant) {
      return contestant.name == name || contestant.name.starts_with(name + "_");
    });
    HONE_CHECK(chosen.size() > before, "--against", "torch", name);
  }
  return chosen;
}

void run_bench_gemm(const GemmCommand& command, bench::BenchRun& run, Measurer& measurer,
                    Executor& executor) {
  auto options =
      run.options().quick ? bench::quick_bench_gemm_options() : bench::BenchGemmOptions();
  if (!command.formats.empty()) options.formats = command.formats;
  if (!command.rows.empty()) options.rows = command.rows;
  if (!command.shapes.empty()) options.shapes.clear();
  for (const std::string& shape : command.shapes) options.shapes.push_back(parse_shape(shape));
  if (!command.cache.empty()) {
    options.cold = command.cache != "hot";
    options.hot = command.cache != "cold";
  }
  bench::bench_gemm(options, run, measurer, executor, choose_contestants(command.against));
}

}  // namespace

void add_bench_gemm(CLI::App& bench, Context& context) {
  auto command = std::make_shared<GemmCommand>();
  CLI::App* verb =
      add_bench_verb(bench, context, "gemm", "Measure matrix products with packed weights",
                     [&context, command](bench::BenchRun& run, Measurer& measurer) {
                       run_bench_gemm(*command, run, measurer, context.executor());
                     });
  verb->add_option("--format", command->formats, "Format of the weights: f32, q8_0, int4:g32, …")
      ->delimiter(',');
  verb->add_option("--rows", command->rows, "Number of rows of activations")
      ->delimiter(',')
      ->check(whole_number(1));
  verb->add_option("--shape", command->shapes, "Shape of the weights as OUTPUTSxDEPTH")
      ->delimiter(',');
  verb->add_option(
          "--cache", command->cache,
          "cold: the weights are in no cache; hot: always the same weights; both: measure both")
      ->check(CLI::IsMember({"cold", "hot", "both"}));
  verb->add_option("--against", command->against, "Libraries to compare with: torch")
      ->delimiter(',');
}

}  // namespace hone::cli
