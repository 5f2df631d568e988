// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/bench_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/machine/machine_card.h"
#include "hone/core/machine/trace.h"

namespace hone::bench {
namespace {

MeasureOptions options_for(const BenchOptions& options) {
  MeasureOptions measure;
  if (options.repeat > 0) {
    measure = {.min_samples = options.repeat,
               .max_samples = options.repeat,
               .max_seconds = std::numeric_limits<double>::infinity()};
  } else if (options.quick) {
    measure = {.min_samples = 5, .max_samples = 30, .max_seconds = 1.5};
  }
  measure.stop = options.stop;
  return measure;
}

void check(const BenchCase& bench_case) {
  const std::size_t count = bench_case.contestants.size();
  HONE_CHECK(bench_case.ours.size() == count, "bench", concat(count, " entries in `ours`"),
             bench_case.ours.size());
  HONE_CHECK(bench_case.extra.empty() || bench_case.extra.size() == count, "bench",
             concat("0 or ", count, " entries in `extra`"), bench_case.extra.size());
  HONE_CHECK(bench_case.amounts.empty() || bench_case.amounts.size() == count, "bench",
             concat("0 or ", count, " entries in `amounts`"), bench_case.amounts.size());
  HONE_CHECK(bench_case.notes.empty() || bench_case.notes.size() == count, "bench",
             concat("0 or ", count, " entries in `notes`"), bench_case.notes.size());
  for (const Quotient& quotient : bench_case.quotients) {
    HONE_CHECK(std::max(quotient.of, quotient.over) < count, "bench",
               concat("a quotient of ", count, " contestants"), quotient.name);
  }
  HONE_REQUIRE(bench_case.memory == nullptr || bench_case.no_memory_share.empty(), "bench",
               "A case has either a memory probe or a reason why it has none.");
}

BenchCase::Amount amount_of(const BenchCase& bench_case, std::size_t contestant) {
  if (!bench_case.amounts.empty()) return bench_case.amounts[contestant];
  return {.bytes = bench_case.bytes, .tokens = bench_case.tokens};
}

Json make_row(const BenchCase& bench_case, std::size_t contestant, const Spread& spread) {
  const BenchCase::Amount amount = amount_of(bench_case, contestant);
  const std::string& impl = bench_case.contestants[contestant].name;
  Json row{{"case", bench_case.name},          {"impl", impl},
           {"median_ms", spread.median * 1e3}, {"p10_ms", spread.p10 * 1e3},
           {"p90_ms", spread.p90 * 1e3},       {"n", spread.n}};
  double share = 0;
  if (amount.bytes > 0) row["gb_per_s"] = amount.bytes / spread.median * 1e-9;
  if (bench_case.flops > 0) {
    const double rate = bench_case.flops / spread.median * 1e-9;
    row["gflop_per_s"] = rate;
    if (bench_case.roof_gflop_per_s > 0) share = rate / bench_case.roof_gflop_per_s;
  }
  if (amount.tokens > 0) row["tokens_per_s"] = amount.tokens / spread.median;
  if (share > 0) row["share_of_roof"] = share;
  return row;
}

// The interval of fewer rounds covers the truth far less often than it says: of one, it is a point.
bool has_interval(const Measurement& measurement) {
  return static_cast<Index>(measurement.seconds.front().size()) >= kLeastRounds;
}

const char* verdict_of(const RatioInterval& interval) {
  if (interval.is_tie()) return "tie";
  return interval.ratio > 1 ? "faster" : "slower";
}

const char* verdict_of(const RatioInterval& interval, double most) {
  if (interval.high <= most) return "within";
  return interval.low > most ? "above" : "open";
}

// The interval and its verdict, if there is one, or the reason why there is no interval.
void add_interval(const Measurement& measurement, const RatioInterval& interval,
                  const char* verdict, Json& row) {
  if (has_interval(measurement)) {
    row["ci"] = {interval.low, interval.high};
    if (verdict != nullptr) row["verdict"] = verdict;
  } else {
    row["no_interval"] = concat("no interval from fewer than ", kLeastRounds, " rounds");
  }
}

// "[0.9, 1.1] tie", or the reason why there is no interval.
std::string interval_text(const Json& row, int digits) {
  if (!row.contains("ci")) {
    return concat("(", row["no_interval"].get_ref<const std::string&>(), ")\n");
  }
  return fmt::format("[{:.{}f}, {:.{}f}] {}\n", row["ci"][0].get<double>(), digits,
                     row["ci"][1].get<double>(), digits, row.value("verdict", ""));
}

// Fields that say how good a result is and what it took, in the order of the table.
constexpr std::array kMeasures{
    "rel_error",     "kernel_error", "error_over_optimum", "orthogonality",  "distortion",
    "detected_rank", "niter",        "oversample",         "peak_memory_mb", "memory_over_sdpa",
    "provider"};

std::string measures_text(const Json& row) {
  std::string text;
  for (const char* name : kMeasures) {
    const auto found = row.find(name);
    if (found == row.end()) continue;
    text += fmt::format("  {} ", name);
    text += found->is_number()   ? fmt::format("{:.4g}", found->get<double>())
            : found->is_string() ? found->get<std::string>()
                                 : found->dump();
  }
  return text;
}

// "12.34 GB/s" or "1.2 GFLOP/s" or nothing, whichever the row has.
std::string rate_text(const Json& row) {
  std::string text;
  if (row.contains("gb_per_s")) text += fmt::format("{:8.2f} GB/s", row["gb_per_s"].get<double>());
  if (row.contains("gflop_per_s")) {
    text += fmt::format("{:9.1f} GFLOP/s", row["gflop_per_s"].get<double>());
  }
  if (row.contains("tokens_per_s")) {
    text += fmt::format("{:9.2f} tokens/s", row["tokens_per_s"].get<double>());
  }
  if (row.contains("share_of_roof")) {
    text += fmt::format("{:5.0f} % of roof", 100 * row["share_of_roof"].get<double>());
    if (row.contains("share_ci")) {
      text += fmt::format(" [{:.0f}, {:.0f}]", 100 * row["share_ci"][0].get<double>(),
                          100 * row["share_ci"][1].get<double>());
    }
  }
  if (row.contains("mining_bytes")) {
    text += fmt::format(" mining in {:.3f} MB, dense pool {:.3f} MB",
                        row["mining_bytes"].get<double>() * 1e-6,
                        row["dense_pool_bytes"].get<double>() * 1e-6);
  }
  if (row.contains("no_memory_share")) {
    text += " " + row["no_memory_share"].get_ref<const std::string&>();
  }
  return text + measures_text(row);
}

// The mean of each round over some contestants; no rounds for none.
std::vector<double> mean_of(const std::vector<std::vector<double>>& seconds,
                            const std::vector<std::size_t>& contestants) {
  std::vector<double> means;
  for (const std::size_t contestant : contestants) {
    means.resize(seconds[contestant].size());
    for (std::size_t round = 0; round < means.size(); ++round) {
      means[round] += seconds[contestant][round] / static_cast<double>(contestants.size());
    }
  }
  return means;
}

std::size_t widest(const Json& rows, const char* key) {
  std::size_t width = 0;
  for (const Json& row : rows)
    width = std::max(width, row[key].get_ref<const std::string&>().size());
  return width;
}

}  // namespace

double growth_exponent(std::span<const double> sizes, std::span<const double> values) {
  HONE_CHECK(values.size() == sizes.size(), "bench", concat(sizes.size(), " values"),
             values.size());
  double x_mean = 0, y_mean = 0, xx = 0, xy = 0;
  const auto count = static_cast<double>(sizes.size());
  const auto log_of = [](double value) {
    HONE_CHECK(std::isfinite(value) && value > 0, "bench", "sizes and values above 0", value);
    return std::log(value);
  };
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    x_mean += log_of(sizes[i]) / count;
    y_mean += log_of(values[i]) / count;
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const double x = std::log(sizes[i]) - x_mean;
    xx += x * x;
    xy += x * (std::log(values[i]) - y_mean);
  }
  HONE_REQUIRE(std::ranges::adjacent_find(sizes, std::not_equal_to<>()) != sizes.end(), "bench",
               "An exponent needs two different sizes.");
  return xy / xx;
}

BenchRun::BenchRun(Measurer& measurer, const BenchOptions& options)
    : measurer_(measurer), options_(options) {
  HONE_CHECK(options.repeat >= 0, "bench", "--repeat >= 0", options.repeat);
}

void BenchRun::add(const BenchCase& bench_case) {
  check(bench_case);
  const auto& contestants = bench_case.contestants;
  log_debug(concat("bench: ", bench_case.name));
  HONE_TRACE_ZONE("case", {"name", bench_case.name}, {"bytes", bench_case.bytes},
                  {"flops", bench_case.flops});
  if (!contestants.empty()) {
    Probed probed = measure(bench_case);
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      Json row = make_row(bench_case, i, measurer_.spread(probed.work.seconds[i]));
      row["foreign_load"] = probed.work.foreign_load;
      if (!probed.memory_seconds[i].empty()) add_memory_share(bench_case, probed, i, row);
      if (!bench_case.no_memory_share.empty() && bench_case.ours[i]) {
        row["no_memory_share"] = bench_case.no_memory_share;
      }
      if (!bench_case.extra.empty()) row.update(bench_case.extra[i]);
      rows_.push_back(std::move(row));
      notes_.push_back(bench_case.notes.empty() ? "" : bench_case.notes[i]);
    }
    append_ratios(bench_case, probed.work);
    append_quotients(bench_case, probed.work);
    append_geometric_means(bench_case, probed.work);
  }
  const auto add_status = [&](const std::string& name, const std::string& status) {
    add_untimed({{"case", bench_case.name}, {"impl", name}, {"status", status}}, status);
  };
  for (const auto& [name, why] : bench_case.skipped) add_status(name, "skipped: " + why);
  for (const std::string& name : bench_case.absent) add_status(name, "absent");
}

void BenchRun::add_untimed(Json row, const std::string& note) {
  rows_.push_back(std::move(row));
  notes_.push_back(note);
}

// Runs the probe before every contestant, so that all of them find the same caches, or around the
// runs of ours where the case says so.
BenchRun::Probed BenchRun::measure(const BenchCase& bench_case) {
  const bool has_bytes = amount_of(bench_case, 0).bytes > 0;
  const kernels::MemoryProbe* memory = has_bytes ? bench_case.memory : nullptr;
  const std::size_t count = bench_case.contestants.size();
  std::vector<Contestant> all;
  std::vector<std::size_t> places;                      // of the contestants
  std::vector<std::vector<std::size_t>> probes(count);  // of each contestant
  for (std::size_t i = 0; i < count; ++i) {
    const bool around = bench_case.probe_around;
    const bool probed = memory != nullptr && (!around || bench_case.ours[i]);
    Contestant contestant = bench_case.contestants[i];
    if (probed) {
      probes[i].push_back(all.size());
      all.push_back(memory->contestant);
      // Not empty afterwards, because a prepared run is timed once per sample.
      if (around) all.back().prepare = std::exchange(contestant.prepare, [] {});
    }
    places.push_back(all.size());
    all.push_back(std::move(contestant));
    if (!probed || !around) continue;
    probes[i].push_back(all.size());
    all.push_back(memory->contestant);
  }
  Probed probed{.work = measurer_.measure(all, options_for(options_)), .memory_seconds = {}};
  Measurement& work = probed.work;
  const std::vector<std::vector<double>> seconds = std::exchange(work.seconds, {});
  work.names.clear();
  for (std::size_t i = 0; i < count; ++i) {
    work.seconds.push_back(seconds[places[i]]);
    work.names.push_back(all[places[i]].name);
    probed.memory_seconds.push_back(mean_of(seconds, probes[i]));
  }
  return probed;
}

void BenchRun::add_memory_share(const BenchCase& bench_case, const Probed& probed, std::size_t i,
                                Json& row) const {
  const kernels::MemoryProbe& memory = *bench_case.memory;
  const Measurement pair{.names = {row["impl"], memory.contestant.name},
                         .seconds = {probed.work.seconds[i], probed.memory_seconds[i]},
                         .seed = probed.work.seed};
  row["roof_gb_per_s"] = memory.bytes / measurer_.spread(pair.seconds[1]).median * 1e-9;
  const RatioInterval times = measurer_.speedup(pair, 0, 1);
  const double moved = amount_of(bench_case, i).bytes / memory.bytes, share = moved * times.ratio;
  if (share < row.value("share_of_roof", 0.0)) return;
  row["share_of_roof"] = share;
  if (has_interval(pair)) row["share_ci"] = {moved * times.low, moved * times.high};
}

void BenchRun::append_ratios(const BenchCase& bench_case, const Measurement& measurement) {
  const std::size_t count = bench_case.contestants.size(), first_row = rows_.size() - count;
  const auto add_ratio = [&](std::size_t i, std::size_t j) {
    const RatioInterval interval =
        measurer_.speedup(measurement, static_cast<Index>(i), static_cast<Index>(j));
    Json ratio{{"against", measurement.names[j]}, {"ratio", interval.ratio}};
    add_interval(measurement, interval, verdict_of(interval), ratio);
    Json& row = rows_[first_row + i];
    if (!bench_case.rivalries.empty() && !row.contains("ratio")) row["ratio"] = ratio;
    Json entry{{"case", bench_case.name}, {"impl", measurement.names[i]}};
    entry.update(ratio);
    ratios_.push_back(std::move(entry));
  };
  for (const Rivalry& rivalry : bench_case.rivalries) {
    add_ratio(rivalry.impl, *std::ranges::min_element(rivalry.against, {}, [&](std::size_t i) {
                return measurer_.spread(measurement.seconds[i]).median;
              }));
  }
  if (!bench_case.rivalries.empty()) return;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < count; ++j) {
      if (bench_case.ours[i] && !bench_case.ours[j]) add_ratio(i, j);
    }
  }
}

// All contestants ran in every round, so that the geometric means of rounds are samples of two
// contestants, of which a paired interval keeps what rounds have in common.
void BenchRun::append_geometric_means(const BenchCase& bench_case, const Measurement& measurement) {
  for (const GeometricMean& mean : bench_case.geometric_means) {
    const std::size_t rounds = measurement.seconds.front().size();
    Measurement of_rounds{.names = {mean.name, "against"},
                          .seconds = {std::vector<double>(rounds), std::vector<double>(rounds)},
                          .seed = measurement.seed};
    for (std::size_t round = 0; round < rounds; ++round) {
      double ours = 0, others = 0;
      for (const auto& [impl, against] : mean.pairs) {
        ours += std::log(measurement.seconds[impl][round]);
        others += std::log(measurement.seconds[against][round]);
      }
      const auto points = static_cast<double>(mean.pairs.size());
      of_rounds.seconds[0][round] = std::exp(ours / points);
      of_rounds.seconds[1][round] = std::exp(others / points);
    }
    const RatioInterval interval = measurer_.speedup(of_rounds, 0, 1);
    Json row{{"case", bench_case.name},
             {"name", mean.name},
             {"points", mean.pairs.size()},
             {"ratio", interval.ratio}};
    add_interval(of_rounds, interval, verdict_of(interval), row);
    if (has_interval(of_rounds)) {
      row["least"] = mean.least;
      row["wholly_below"] = std::ranges::count_if(mean.pairs, [&](const auto& pair) {
        return measurer_
                   .speedup(measurement, static_cast<Index>(pair.first),
                            static_cast<Index>(pair.second))
                   .high < mean.least;
      });
    }
    geometric_means_.push_back(std::move(row));
  }
}

void BenchRun::append_quotients(const BenchCase& bench_case, const Measurement& measurement) {
  for (const Quotient& quotient : bench_case.quotients) {
    RatioInterval interval = measurer_.speedup(measurement, static_cast<Index>(quotient.over),
                                               static_cast<Index>(quotient.of));
    for (double* value : {&interval.ratio, &interval.low, &interval.high}) {
      *value *= quotient.factor;
    }
    const bool has_bar = quotient.most > 0;
    Json row{{"case", bench_case.name}, {"name", quotient.name}, {"quotient", interval.ratio}};
    if (has_bar) row["most"] = quotient.most;
    add_interval(measurement, interval, has_bar ? verdict_of(interval, quotient.most) : nullptr,
                 row);
    quotients_.push_back(std::move(row));
  }
}

void BenchRun::add_growth(const Growth& growth) {
  exponents_.push_back({{"name", growth.name},
                        {"impl", growth.impl},
                        {"of", growth.of},
                        {"exponent", growth_exponent(growth.sizes, growth.values)},
                        {"sizes", growth.sizes}});
}

Json BenchRun::report() const {
  return {{"machine", describe_machine()},
          {"rows", rows_},
          {"ratios", ratios_},
          {"quotients", quotients_},
          {"geometric_means", geometric_means_},
          {"exponents", exponents_}};
}

std::string BenchRun::table() const {
  const std::size_t case_width = widest(rows_, "case"), impl_width = widest(rows_, "impl");
  std::string text;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Json& row = rows_[i];
    text += fmt::format("{:<{}}  {:<{}}  ", row["case"].get<std::string>(), case_width,
                        row["impl"].get<std::string>(), impl_width);
    if (row.contains("median_ms")) {
      text += fmt::format("{:10.4f} ms [{:.4f}, {:.4f}] ({}){}{}", row["median_ms"].get<double>(),
                          row["p10_ms"].get<double>(), row["p90_ms"].get<double>(),
                          row["n"].get<Index>(), rate_text(row), notes_[i].empty() ? "" : "  ");
    }
    text += notes_[i] + "\n";
  }
  for (const Json& ratio : ratios_) {
    text += fmt::format("{:<{}}  {} against {}: {:.3f}x ", ratio["case"].get<std::string>(),
                        case_width, ratio["impl"].get<std::string>(),
                        ratio["against"].get<std::string>(), ratio["ratio"].get<double>());
    text += interval_text(ratio, 3);
  }
  for (const Json& row : quotients_) {
    text += fmt::format("{:<{}}  {}: {:.5f} ", row["case"].get<std::string>(), case_width,
                        row["name"].get<std::string>(), row["quotient"].get<double>());
    if (row.contains("most")) text += fmt::format("of at most {} ", row["most"].get<double>());
    text += interval_text(row, 5);
  }
  for (const Json& row : geometric_means_) {
    text += fmt::format("{:<{}}  {}: geometric mean of {} ratios {:.3f}x ",
                        row["case"].get<std::string>(), case_width, row["name"].get<std::string>(),
                        row["points"].get<Index>(), row["ratio"].get<double>());
    text += interval_text(row, 3);
    if (!row.contains("wholly_below")) continue;
    text.pop_back();
    text += fmt::format("; {} with an interval wholly below {}\n", row["wholly_below"].get<Index>(),
                        row["least"].get<double>());
  }
  for (const Json& row : exponents_) {
    text += fmt::format("{}  {}: {} grows with exponent {:.3f} over {}\n",
                        row["name"].get<std::string>(), row["impl"].get<std::string>(),
                        row["of"].get<std::string>(), row["exponent"].get<double>(),
                        row["sizes"].dump());
  }
  return text;
}

}  // namespace hone::bench
