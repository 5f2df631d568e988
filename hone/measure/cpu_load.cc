// SPDX-License-Identifier: Apache-2.0
#include "hone/measure/cpu_load.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "hone/core/machine/clock.h"

namespace hone::measure {
namespace {

std::optional<double> read_busy_seconds() {
  std::ifstream file("/proc/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return parse_busy_seconds(line, static_cast<double>(::sysconf(_SC_CLK_TCK)));
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

double own_cpu_seconds() {
  double total = 0;
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    ::getrusage(who, &usage);
    total += seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  }
  return total;
}

}  // namespace

std::optional<double> parse_busy_seconds(std::string_view proc_stat, double ticks_per_second) {
  // cpu user nice system idle iowait irq softirq steal …
  std::istringstream words{std::string(proc_stat)};
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, softirq = 0, steal = 0;
  words >> name >> user >> nice >> system >> idle >> wait >> irq >> softirq >> steal;
  if (!words || name != "cpu") return std::nullopt;
  return (user + nice + system + irq + softirq + steal) / ticks_per_second;
}

ForeignLoad::ForeignLoad()
    : busy_(read_busy_seconds()), own_(own_cpu_seconds()), begin_ns_(steady_clock().now_ns()) {}

double ForeignLoad::cpus() const {
  const auto busy = read_busy_seconds();
  const double elapsed = seconds_between(begin_ns_, steady_clock().now_ns());
  if (!busy || !busy_ || elapsed <= 0) return 0;
  const double foreign = (*busy - *busy_) - (own_cpu_seconds() - own_);
  return std::max(0.0, foreign / elapsed);
}

}  // namespace hone::measure
