// SPDX-License-Identifier: Apache-2.0
#include "hone/core/machine/cpu_info.h"

#include <hwy/targets.h>
#include <sched.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "hone/core/check.h"

namespace hone {
namespace {

struct IsaRow {
  Isa isa;
  std::string_view name;
  std::int64_t highway_targets;  // Highway targets this family may run
};

// Targets that newer Highway releases added. hone's kernels do not need them, but a forced set must
// permit them where they are compiled in.
#ifdef HWY_SSE2
constexpr std::int64_t kSse2 = HWY_SSE2;
#else
constexpr std::int64_t kSse2 = 0;
#endif

#if defined(__x86_64__)
constexpr std::int64_t kBase = kSse2 | HWY_EMU128;
constexpr std::int64_t kSse4 = kBase | HWY_SSSE3 | HWY_SSE4;
constexpr std::int64_t kAvx2 = kSse4 | HWY_AVX2;
constexpr std::int64_t kAvx512 = kAvx2 | HWY_AVX3 | HWY_AVX3_DL;
constexpr std::int64_t kNeon = 0, kSve = 0;
#else
constexpr std::int64_t kBase = HWY_EMU128, kSse4 = 0, kAvx2 = 0, kAvx512 = 0;
constexpr std::int64_t kNeon = kBase | HWY_NEON;
constexpr std::int64_t kSve = kNeon | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128;
#endif

constexpr std::array<IsaRow, 9> kIsas{{
    {Isa::Scalar, "scalar", kBase},
    {Isa::Sse4, "sse4", kSse4},
    {Isa::Avx2, "avx2", kAvx2},
    {Isa::AvxVnni, "avxvnni", kAvx2},
    {Isa::Avx512, "avx512", kAvx512},
    {Isa::Avx512Vnni, "avx512vnni", kAvx512},
    {Isa::Amx, "amx", kAvx512},
    {Isa::Neon, "neon", kNeon},
    {Isa::Sve, "sve", kSve},
}};

const IsaRow& row_of(Isa isa) { return kIsas[static_cast<std::size_t>(isa)]; }

// The process-wide limit; -1 means not forced. Written once at startup, before any kernel runs.
std::atomic<int> g_forced{-1};

// Whether a limit of `limit` permits `isa`. AvxVnni and Avx512 are siblings above Avx2.
bool is_within(Isa isa, Isa limit) {
  if (limit == Isa::Avx512 && isa == Isa::AvxVnni) return false;
  if ((limit >= Isa::Neon) != (isa >= Isa::Neon) && isa != Isa::Scalar) return false;
  return isa <= limit;
}

std::string read_first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

double parse_quota(const std::string& quota, const std::string& period) {
  const double q = std::strtod(quota.c_str(), nullptr);
  const double p = std::strtod(period.c_str(), nullptr);
  return q > 0 && p > 0 ? q / p : 0;
}

double quota_in_folder(const std::filesystem::path& folder) {
  std::istringstream v2(read_first_line(folder / "cpu.max"));
  std::string quota, period;
  if (v2 >> quota >> period) return parse_quota(quota, period);
  return parse_quota(read_first_line(folder / "cpu.cfs_quota_us"),
                     read_first_line(folder / "cpu.cfs_period_us"));
}

// The folders of one controller's cgroups, from this process's own up to the mount point.
std::vector<std::filesystem::path> cgroup_folders(std::string_view controller) {
  std::vector<std::filesystem::path> folders;
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool v2 = names == ",,";
    if (!v2 && names.find(concat(",", controller, ",")) == std::string::npos) continue;
    const std::filesystem::path root =
        v2 ? std::filesystem::path("/sys/fs/cgroup")
           : std::filesystem::path(concat("/sys/fs/cgroup/", controller));
    for (std::filesystem::path at = line.substr(second + 1);; at = at.parent_path()) {
      folders.push_back(root / at.relative_path());
      if (at == at.parent_path()) break;
    }
  }
  return folders;
}

Index read_number(const std::filesystem::path& path, Index otherwise) {
  const std::string line = read_first_line(path);
  char* end = nullptr;
  const double value = std::strtod(line.c_str(), &end);
  if (end == line.c_str() || !(value >= 0) || value > 9e18) return otherwise;
  return static_cast<Index>(value);
}

constexpr const char* kCpus = "/sys/devices/system/cpu";

// "512K" or "32M".
Index read_cache_size(const std::filesystem::path& cache) {
  const std::string size = read_first_line(cache / "size");
  const Index number = std::strtoll(size.c_str(), nullptr, 10);
  return size.ends_with("M") ? number << 20 : number << 10;
}

Index read_cache_bytes(std::string_view level, std::string_view type) {
  const std::filesystem::path root = std::filesystem::path(kCpus) / "cpu0/cache";
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(root, ignored)) {
    if (read_first_line(entry.path() / "level") != level) continue;
    const std::string found = read_first_line(entry.path() / "type");
    if (found == type || found == "Unified") return read_cache_size(entry.path());
  }
  return 0;
}

// Model and family from what /proc/cpuinfo says of the first CPU.
void read_model(CpuInfo& info) {
  info.model = "unknown";
  bool is_amd = false;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string value = line.substr(colon + 2);
    if (line.starts_with("vendor_id")) is_amd = value == "AuthenticAMD";
    if (line.starts_with("cpu family") && is_amd) info.amd_family = std::atoi(value.c_str());
    if (line.starts_with("model name")) info.model = value;
  }
}

#if defined(__x86_64__)
// The __builtin_cpu_supports of clang 14 does not know "avxvnni". These instructions use the
// registers of AVX2, so an operating system that supports AVX2 supports them, too.
bool cpu_has_avx_vnni() {
  static const bool has = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || eax < 1) return false;
    return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1) != 0;
  }();
  return has;
}

// Whether the processor multiplies tiles of int8, and Linux gives this process and its threads the
// registers for them, which it does on request only (arch_prctl(2), ARCH_REQ_XCOMP_PERM).
bool may_use_amx() {
  constexpr unsigned kTiles = 1U << 24, kInt8 = 1U << 25;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 &&
         (edx & (kTiles | kInt8)) == (kTiles | kInt8) &&
         ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

// A virtual machine leaves to its host each of the CPUID instructions that this takes (20 us in
// all), so machine_has() calls it once, before anything is forced.
bool detect(Isa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    (hwy::SupportedTargets() & HWY_AVX2) != 0;
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  switch (isa) {
    case Isa::Scalar:
      return true;
    case Isa::Sse4:
      return __builtin_cpu_supports("sse4.2");
    case Isa::Avx2:
      return avx2;
    case Isa::AvxVnni:
      return avx2 && cpu_has_avx_vnni();
    case Isa::Avx512:
      return avx512;
    case Isa::Avx512Vnni:
      return avx512 && __builtin_cpu_supports("avx512vnni");
    case Isa::Amx:
      return avx512 && __builtin_cpu_supports("avx512vnni") && may_use_amx();
    default:
      return false;
  }
#else
  if (isa == Isa::Scalar) return true;
  const std::int64_t targets = row_of(isa).highway_targets;
  return targets != 0 && (hwy::SupportedTargets() & targets & ~row_of(Isa::Neon).highway_targets ||
                          isa == Isa::Neon);
#endif
}

}  // namespace

std::string_view name_of(Isa isa) { return row_of(isa).name; }

Isa parse_isa(std::string_view name) {
  std::string known;
  for (const IsaRow& row : kIsas) {
    if (row.name == name) return row.isa;
    known += concat(known.empty() ? "" : " ", row.name);
  }
  fail_argument("force-isa", concat("one of: ", known), name);
}

std::vector<Isa> all_isas() {
  std::vector<Isa> isas;
  for (const IsaRow& row : kIsas) isas.push_back(row.isa);
  return isas;
}

bool machine_has(Isa isa) {
  if (isa == Isa::Amx) {
    static const bool amx = detect(isa);
    return amx;
  }
  static const unsigned found = [] {
    unsigned bits = 0;
    for (const IsaRow& row : kIsas) {
      if (row.isa != Isa::Amx) bits |= unsigned{detect(row.isa)} << static_cast<int>(row.isa);
    }
    return bits;
  }();
  return (found >> static_cast<int>(isa) & 1) != 0;
}

bool isa_enabled(Isa isa) {
  const int forced = g_forced.load(std::memory_order_relaxed);
  return (forced < 0 || is_within(isa, static_cast<Isa>(forced))) && machine_has(isa);
}

Isa best_isa() {
  Isa best = Isa::Scalar;
  for (const IsaRow& row : kIsas) {
    if (isa_enabled(row.isa)) best = row.isa;
  }
  return best;
}

void force_isa(Isa isa) {
  if (!machine_has(isa)) {
    fail_unsupported("force-isa", concat("a processor with ", name_of(isa)), cpu_info().model);
  }
  g_forced = static_cast<int>(isa);
  hwy::SetSupportedTargetsForTest(row_of(isa).highway_targets);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

void force_isa_from_environment() {
  const char* name = std::getenv("HONE_FORCE_ISA");
  if (name != nullptr && *name != '\0') force_isa(parse_isa(name));
}

const CpuInfo& cpu_info() {
  static const CpuInfo info = [] {
    CpuInfo read;
    read_model(read);
    read.logical_cpus = static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
    read.l1d_bytes = read_cache_bytes("1", "Data");
    read.l2_bytes = read_cache_bytes("2", "Data");
    read.l3_bytes = read_cache_bytes("3", "Data");
    read.last_cache_bytes = read_last_cache_bytes(kCpus);
    return read;
  }();
  return info;
}

Index read_last_cache_bytes(const std::filesystem::path& cpus) {
  std::map<std::string, std::map<std::string, Index>> levels;  // level, CPUs that share it: bytes
  std::error_code ignored;
  for (const auto& cpu : std::filesystem::directory_iterator(cpus, ignored)) {
    for (const auto& cache : std::filesystem::directory_iterator(cpu.path() / "cache", ignored)) {
      const std::string level = read_first_line(cache.path() / "level");
      if (level.empty() || read_first_line(cache.path() / "type") == "Instruction") continue;
      levels[level][read_first_line(cache.path() / "shared_cpu_list")] =
          read_cache_size(cache.path());
    }
  }
  Index total = 0;
  if (levels.empty()) return total;
  for (const auto& [shared_by, bytes] : levels.rbegin()->second) total += bytes;
  return total;
}

double cgroup_cpu_quota() {
  double smallest = 0;
  for (const auto& folder : cgroup_folders("cpu")) {
    const double quota = quota_in_folder(folder);
    if (quota > 0 && (smallest == 0 || quota < smallest)) smallest = quota;
  }
  return smallest;
}

int usable_cpus() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  int count = cpu_info().logical_cpus;
  if (::sched_getaffinity(0, sizeof mask, &mask) == 0) count = CPU_COUNT(&mask);
  const double quota = cgroup_cpu_quota();
  if (quota > 0) count = std::min(count, static_cast<int>(std::floor(quota)));
  return std::max(count, 1);
}

Index available_memory_bytes() {
  constexpr Index kUnlimited = std::numeric_limits<Index>::max();
  Index available = kUnlimited;
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("MemAvailable:"))
      available = std::strtoll(line.c_str() + 13, nullptr, 10) << 10;
  }
  for (const auto& folder : cgroup_folders("memory")) {
    available = std::min(available, cgroup_memory_left(folder).value_or(kUnlimited));
  }
  return available;
}

std::optional<Index> cgroup_memory_left(const std::filesystem::path& folder) {
  constexpr Index kUnlimited = std::numeric_limits<Index>::max();
  const Index v2 = read_number(folder / "memory.max", kUnlimited);
  const Index limit = std::min(v2, read_number(folder / "memory.limit_in_bytes", kUnlimited));
  if (limit > (kUnlimited >> 1)) return std::nullopt;
  const Index used = std::max(read_number(folder / "memory.current", 0),
                              read_number(folder / "memory.usage_in_bytes", 0));
  Index cached = 0;
  std::ifstream file(folder / "memory.stat");  // version 1 has the sum over all groups below, too
  Index number = 0;
  for (std::string key; file >> key >> number;) {
    if (key == "inactive_file" || key == "total_inactive_file") cached = std::max(cached, number);
  }
  return std::max<Index>(limit - std::max<Index>(used - cached, 0), 0);
}

}  // namespace hone
