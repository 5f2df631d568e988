// SPDX-License-Identifier: Apache-2.0
#include "hone/core/machine/machine_card.h"

#include <sys/utsname.h>

#include <fstream>

#include "hone/core/check.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/core/version.h"

namespace hone {
namespace {

std::string system_text() {
  utsname name{};
  if (::uname(&name) != 0) return "unknown";
  return concat(name.sysname, " ", name.release, " ", name.machine);
}

// Null if the system has no such file.
Json first_line_of(const char* path) {
  std::ifstream file(path);
  std::string line;
  return std::getline(file, line) ? Json(line) : Json();
}

Json known(Index bytes) { return bytes > 0 ? Json(bytes) : Json(); }

}  // namespace

Json describe_machine() {
  const CpuInfo& info = cpu_info();
  Json isas = Json::array();
  for (const Isa isa : all_isas()) {
    if (isa_enabled(isa)) isas.push_back(name_of(isa));
  }
  const double quota = cgroup_cpu_quota();
  return {{"cpu", info.model},
          {"isa", isas},
          {"cores", info.logical_cpus},
          {"usable_cores", usable_cpus()},
          {"quota", quota > 0 ? Json(quota) : Json()},
          {"l1d_bytes", known(info.l1d_bytes)},
          {"l2_bytes", known(info.l2_bytes)},
          {"l3_bytes", known(info.l3_bytes)},
          {"available_memory_bytes", available_memory_bytes()},
          {"governor", first_line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")},
          {"system", system_text()},
          {"hone", version_text()}};
}

Json machine_card(Executor& executor) {
  Json card = describe_machine();
  card["threads"] = executor.workers();
  return card;
}

}  // namespace hone
