// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hone::tune {

// How many CPUs other processes keep busy: what /proc/stat counts as busy (time stolen by a
// hypervisor included) less what this process and its finished children used, over the time passed.
class ForeignLoad {
 public:
  ForeignLoad();  // starts counting
  // Since the start; 0 where the system does not tell.
  double cpus() const;

 private:
  std::optional<double> busy_;
  double own_;
  std::int64_t begin_ns_;
};

// Busy CPU seconds since boot from the text of /proc/stat; nothing when it is malformed.
std::optional<double> parse_busy_seconds(std::string_view proc_stat, double ticks_per_second);

}  // namespace hone::tune
