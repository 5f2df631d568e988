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
  bool quick = false;         // fewer samples, for a short run
  Index repeat = 0;           // fixed number of timed rounds; 0: until the interval is narrow
  std::stop_token stop = {};  // requested: Error{Cancelled} before the next sample
};

// The time of one contestant over the time of another: for example, a share or the growth with
// size.
struct Quotient {
  std::string name;              // "b32 / b8"
  std::size_t of = 0, over = 0;  // indices of contestants
  double most = 0;               // upper limit; 0: none
  double factor = 1;  // scales the quotient: 8 for a rate if `over` does 8 times the work of `of`
};

// Speedup of the contestant `impl` over the fastest (by median) of `against`.
struct Rivalry {
  std::size_t impl = 0;
  std::vector<std::size_t> against;
};

// Geometric mean of the speedups first/second over all pairs.
struct GeometricMean {
  std::string name;
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  double least = 0;  // pairs whose interval is wholly below this are counted
};

// Values of one contestant for several sizes of its work, to fit the exponent p of value ~ size^p.
struct Growth {
  std::string name;  // "m64/softmax/forward"
  std::string impl;
  std::string of;  // "time", "memory"
  std::vector<double> sizes, values;
};
// The slope of the least-squares line of log(value) over log(size). Throws Error{InvalidArgument}
// unless there are as many values as sizes, all are finite and above 0, and two sizes differ.
double growth_exponent(std::span<const double> sizes, std::span<const double> values);

// One piece of work and its contestants.
struct BenchCase {
  std::string name;                     // "24x1048576/adamw"
  std::vector<Contestant> contestants;  // interleaved in one run
  std::vector<bool> ours;  // per contestant; each pair of ours and another one gets a ratio
  double bytes = 0;        // least traffic of one run: gb_per_s = bytes / time
  double flops = 0;        // gflop_per_s = flops / time
  double tokens = 0;       // tokens_per_s = tokens / time
  struct Amount {
    double bytes = 0, tokens = 0;
  };
  std::vector<Amount> amounts = {};  // per contestant, instead of bytes and tokens; may be empty
  const kernels::MemoryProbe* memory = nullptr;  // interleaved with the contestants
  // Whether memory is probed immediately before and after each run of ours, once its preparation is
  // done, and not for others. Use it for preparations that take long or that wait until the threads
  // of others are idle, because spinning threads slow the probe. Use it also for long runs, during
  // which the bandwidth changes.
  bool probe_around = false;
  std::string no_memory_share;      // the reason, if `memory` is null
  double roof_gflop_per_s = 0;      // measured in this run
  std::vector<Json> extra;          // per contestant: fields added to its row; may be empty
  std::vector<std::string> absent;  // peers that are not installed: a row with "status":"absent"
  // Contestants that are left out, and why: a row with "status":"skipped: <why>".
  std::vector<std::pair<std::string, std::string>> skipped = {};
  std::vector<Quotient> quotients = {};
  // The ratios to compute. If empty, each of ours is compared with each other contestant. If not,
  // the row of a contestant also has its first ratio.
  std::vector<Rivalry> rivalries = {};
  std::vector<GeometricMean> geometric_means = {};
  std::vector<std::string> notes = {};  // per contestant: end of its line in the table
};

// Measures cases one after another and collects the document of `hone bench --json`:
//   machine{}
//   rows[]{case,impl,median_ms,p10_ms,p90_ms,n,gb_per_s|gflop_per_s,share_of_roof,…}
//   ratios[]{case,impl,against,ratio,ci[2],verdict}
//   quotients[]{case,name,quotient,ci[2]}, with a limit also most and verdict
//   geometric_means[]{case,name,points,ratio,ci[2],verdict,least,wholly_below}
//   exponents[]{name,impl,of,exponent,sizes[]}
// share_of_roof is the share of the memory bandwidth or of the arithmetic peak, whichever is
// larger. With a share of memory, a row also has roof_gb_per_s and the 95 % interval share_ci of
// the share; no_memory_share is the reason why there is none. A ratio > 1 means that impl is
// faster, and its verdict is faster|slower|tie. The interval of a quotient with a limit gives the
// verdict within|above|open. The interval of a geometric mean is computed from the geometric means
// of each round's times.
// Below kLeastRounds rounds, there are no intervals and no verdicts: no_interval has the reason,
// and rows have no share_ci.
inline constexpr Index kLeastRounds = 5;
class BenchRun {
 public:
  BenchRun(Measurer& measurer, const BenchOptions& options);
  void add(const BenchCase& bench_case);
  // Adds a row that was counted instead of timed. `note` is its line in the table.
  void add_untimed(Json row, const std::string& note);
  // Throws what growth_exponent() throws.
  void add_growth(const Growth& growth);
  const Json& rows() const { return rows_; }
  const BenchOptions& options() const { return options_; }
  Json report() const;
  // The document as an aligned table.
  std::string table() const;

 private:
  // The samples of the probe, apart from those of the contestants: [contestant][round]. Contestants
  // that are not probed have no rounds.
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
  std::vector<std::string> notes_;  // one for each of rows_
};

}  // namespace hone::bench
