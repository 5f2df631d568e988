// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/index.h"

namespace hone {

// Instruction-set families a kernel may be written for, weakest first within one architecture.
enum class Isa { Scalar, Sse4, Avx2, AvxVnni, Avx512, Avx512Vnni, Amx, Neon, Sve };

std::string_view name_of(Isa isa);
// "scalar sse4 avx2 avxvnni avx512 avx512vnni amx neon sve"; Error{InvalidArgument} on another
// name.
Isa parse_isa(std::string_view name);
// All families, in order. Tests iterate over them and report those that the machine lacks as
// skipped.
std::vector<Isa> all_isas();

// What the processor and the operating system offer (AVX-512 = F, BW, CD, DQ and VL). Asking for
// Amx requests its registers from Linux, which then refuses signal stacks below 12 KB in this
// process, and refuses the request if a thread already has one. isa_enabled() and best_isa() do not
// ask if --force-isa or HONE_FORCE_ISA excludes Amx.
bool machine_has(Isa isa);

// Whether kernels may use this family: machine_has(), limited by --force-isa or HONE_FORCE_ISA.
bool isa_enabled(Isa isa);
// The strongest enabled family.
Isa best_isa();
// Limits this process to families up to `isa`, including Highway's targets. Throws
// Error{Unsupported} if the machine lacks it. Call it once, before the first kernel runs.
void force_isa(Isa isa);
// Applies HONE_FORCE_ISA if it is set.
void force_isa_from_environment();

// Value of HONE_FORCE_KERNEL for one operation ("gemm_q4:avx512vnni,…"), empty when not forced.
// Error{InvalidArgument} naming the known ones when any part of it names an operation or a variant
// that does not exist.
std::string forced_kernel(std::string_view op);
// Throws what forced_kernel() would: for a program's start.
void check_forced_kernels();

struct CpuInfo {
  std::string model;
  int amd_family = 0;                               // 25: Zen 3 and 4; 26: Zen 5; 0: not AMD
  int logical_cpus = 1;                             // online
  Index l1d_bytes = 0, l2_bytes = 0, l3_bytes = 0;  // of CPU 0; 0 if unknown
  Index last_cache_bytes = 0;  // of all last-level caches of the machine together; 0 if unknown
};
const CpuInfo& cpu_info();
// CpuInfo::last_cache_bytes from a folder like /sys/devices/system/cpu. CPUs that share a cache
// list it under the same shared_cpu_list.
Index read_last_cache_bytes(const std::filesystem::path& cpus);

// CPUs this process may use: min(affinity mask, floor of the smallest cgroup CPU quota), at
// least 1.
int usable_cpus();
// The smallest cgroup quota on the path to the root, in CPUs (v2 cpu.max, v1 cfs_quota); 0 if there
// is none.
double cgroup_cpu_quota();
// The memory this process may still allocate: the smallest of MemAvailable and
// cgroup_memory_left() on the path to the root.
Index available_memory_bytes();
// What the limit of a memory cgroup leaves, from a folder like /sys/fs/cgroup (version 1 or 2);
// nothing if it has no limit. Cached files that were not read lately count as free, because the
// kernel drops them before an allocation fails.
std::optional<Index> cgroup_memory_left(const std::filesystem::path& folder);

}  // namespace hone
