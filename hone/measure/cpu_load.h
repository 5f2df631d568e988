// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hone::measure {

// Measures how many CPUs other processes keep busy: the busy time in /proc/stat (including time
// stolen by a hypervisor) minus that of this process and its finished children, divided by the
// elapsed time.
class ForeignLoad {
 public:
  ForeignLoad();  // starts the measurement
  // The average since the start; 0 if the system does not report it.
  double cpus() const;

 private:
  std::optional<double> busy_;
  double own_;
  std::int64_t begin_ns_;
};

// Parses the busy CPU seconds since boot from the text of /proc/stat; empty if it is malformed.
std::optional<double> parse_busy_seconds(std::string_view proc_stat, double ticks_per_second);

}  // namespace hone::measure
