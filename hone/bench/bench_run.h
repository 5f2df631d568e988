// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/machine/measurer.h"
#include "hone/kernels/roof/memory_roofs.h"

namespace hone::bench {

struct BenchOptions {
  bool quick = false;         // fewer samples: the whole bench within a minute
  Index repeat = 0;           // fixed number of timed rounds; 0: until the interval is narrow
  std::stop_token stop = {};  // requested: Error{Cancelled} before the next sample
};

// The time of one contestant over that of another: a share, or growth with size.
struct Quotient {
  std::string name;              // "b32 / b8"
  std::size_t of = 0, over = 0;  // contestants
  double most = 0;               // a bar; 0: none
  double factor = 1;  // of the quotient: 8 for the rate of 8 units of work over that of one
};

// How many times as fast as the fastest of `against`, by its median, `impl` is.
struct Rivalry {
  std::size_t impl = 0;
  std::vector<std::size_t> against;
};

// The geometric mean over pairs of how many times as fast as the second the first is.
struct GeometricMean {
  std::string name;
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  double least = 0;  // counts the pairs whose interval lies wholly below
};

// Values of one contestant over sizes of its work, for the exponent p of value ~ size^p.
struct Growth {
  std::string name;  // "m64/softmax/forward"
  std::string impl;
  std::string of;  // "time", "memory"
  std::vector<double> sizes, values;
};
// The slope of the least-squares line of log(value) over log(size). Error{InvalidArgument} unless
// there are as many values as sizes, all are finite and above 0, and two sizes differ.
double growth_exponent(std::span<const double> sizes, std::span<const double> values);

// One piece of work and its contestants.
struct BenchCase {
  std::string name;                     // "24x1048576/adamw"
  std::vector<Contestant> contestants;  // interleaved in one run
  std::vector<bool> ours;  // per contestant: a ratio ours/other is formed for each pair
  double bytes = 0;        // least traffic of one run: gb_per_s = bytes / time
  double flops = 0;        // gflop_per_s = flops / time
  double tokens = 0;       // tokens_per_s = tokens / time
  struct Amount {
    double bytes = 0, tokens = 0;
  };
  std::vector<Amount> amounts = {};  // per contestant, instead of bytes and tokens; may be empty
  const kernels::MemoryProbe* memory = nullptr;  // interleaved with the contestants
  // Memory is probed immediately before and after each run of ours, its preparation being done, and
  // not for others. For preparations that take long or wait until threads of others are idle, as
  // threads that spin slow the probe, and for long runs, in which bandwidth changes.
  bool probe_around = false;
  std::string no_memory_share;      // the reason, if `memory` is null
  double roof_gflop_per_s = 0;      // measured in this run
  std::vector<Json> extra;          // per contestant: fields added to its row; may be empty
  std::vector<std::string> absent;  // peers that are not installed: a row with "status":"absent"
  // Contestants that are left out, and why: a row with "status":"skipped: <why>".
  std::vector<std::pair<std::string, std::string>> skipped = {};
  std::vector<Quotient> quotients = {};
  // The ratios to form, instead of those of each of ours over each other one. The first ratio of a
  // contestant is also in its row.
  std::vector<Rivalry> rivalries = {};
  std::vector<GeometricMean> geometric_means = {};
  std::vector<std::string> notes = {};  // per contestant: the end of its line in the table
};

// Measures cases one after another and collects the document of `hone bench --json`:
// machine{}, rows[]{case,impl,median_ms,p10_ms,p90_ms,n,gb_per_s|gflop_per_s,share_of_roof,…},
// (share_of_roof: of memory or arithmetic, the larger; of memory also roof_gb_per_s and the share's
// 95 % interval share_ci, or no_memory_share: the reason why there is none)
// ratios[]{case,impl,against,ratio,ci[2],verdict} (ratio > 1: impl is faster; verdict
// faster|slower|tie), quotients[]{case,name,quotient,ci[2]} (with a bar also most, and by the
// interval a verdict within|above|open), geometric_means[]{case,name,points,ratio,ci[2],verdict,
// least,wholly_below}, whose interval is that of the geometric means of each round's times, and
// exponents[]{name,impl,of,exponent,sizes[]}. Below kLeastRounds rounds there is no interval and no
// verdict: no_interval has the reason, and rows have no share_ci.
inline constexpr Index kLeastRounds = 5;
class BenchRun {
 public:
  BenchRun(Measurer& measurer, const BenchOptions& options);
  void add(const BenchCase& bench_case);
  // A row of what was counted instead of timed; `note` is its line in the table.
  void add_untimed(Json row, const std::string& note);
  // Errors as growth_exponent.
  void add_growth(const Growth& growth);
  const Json& rows() const { return rows_; }
  const BenchOptions& options() const { return options_; }
  Json report() const;
  // The document as an aligned table.
  std::string table() const;

 private:
  // The probe's samples apart from the contestants': [contestant][round]; no rounds for those
  // that are not probed.
  struct Probed {
    Measurement work;
    std::vector<std::vector<double>> memory_seconds;
  };
  Probed measure(const BenchCase& bench_case);
  void add_memory_share(const BenchCase& bench_case, const Probed& probed, std::size_t contestant,
                        Json& row) const;
  void append_ratios(const BenchCase& bench_case, const Measurement& measurement);
  void append_quotients(const BenchCase& bench_case, const Measurement& measurement);
  void append_geometric_means(const BenchCase& bench_case, const Measurement& measurement);

  Measurer& measurer_;
  BenchOptions options_;
  Json rows_ = Json::array(), ratios_ = Json::array(), quotients_ = Json::array();
  Json geometric_means_ = Json::array(), exponents_ = Json::array();
  std::vector<std::string> notes_;  // of rows_
};

}  // namespace hone::bench
