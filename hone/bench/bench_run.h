// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/json_io.h"
#include "hone/core/measurer.h"
#include "hone/kernels/roof/memory_roofs.h"

namespace hone::bench {

struct BenchOptions {
  bool quick = false;  // fewer samples: the whole bench within a minute
  Index repeat = 0;    // fixed number of timed rounds; 0: until the interval is narrow
  const std::atomic<bool>* stop = nullptr;  // true: Error{Cancelled} before the next sample
};

// The time of one contestant over that of another: a share, or growth with size.
struct Quotient {
  std::string name;              // "b32 / b8"
  std::size_t of = 0, over = 0;  // contestants
  double most = 0;               // a bar; 0: none
};

// One piece of work and its contestants.
struct BenchCase {
  std::string name;                     // "24x1048576/adamw"
  std::vector<Contestant> contestants;  // interleaved in one run
  std::vector<bool> ours;  // per contestant: a ratio ours/other is formed for each pair
  double bytes = 0;        // least traffic of one run: gb_per_s = bytes / time
  double flops = 0;        // gflop_per_s = flops / time
  double tokens = 0;       // tokens_per_s = tokens / time
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
};

// Measures cases one after another and collects the document of `hone bench --json`:
// machine{}, rows[]{case,impl,median_ms,p10_ms,p90_ms,n,gb_per_s|gflop_per_s,share_of_roof,…},
// (share_of_roof: of memory or arithmetic, the larger; of memory also roof_gb_per_s and the share's
// 95 % interval share_ci, or no_memory_share: the reason why there is none)
// ratios[]{case,impl,against,ratio,ci[2],verdict} (ratio > 1: impl is faster; verdict
// faster|slower|tie), quotients[]{case,name,quotient,ci[2]} (with a bar also most, and by the
// interval a verdict within|above|open). Below kLeastRounds rounds there is no interval and no
// verdict: no_interval has the reason, and rows have no share_ci.
inline constexpr Index kLeastRounds = 5;
class BenchRun {
 public:
  BenchRun(Measurer& measurer, const BenchOptions& options);
  void add(const BenchCase& bench_case);
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

  Measurer& measurer_;
  BenchOptions options_;
  Json rows_ = Json::array(), ratios_ = Json::array(), quotients_ = Json::array();
};

}  // namespace hone::bench
