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
// Parses "scalar", "sse4", "avx2", "avxvnni", "avx512", "avx512vnni", "amx", "neon" or "sve".
// Throws Error{InvalidArgument} for other names.
Isa parse_isa(std::string_view name);
// Returns all families, in order. Tests iterate over them and report families that the machine
// lacks as skipped.
std::vector<Isa> all_isas();

// Returns true if the processor and the operating system support `isa` (AVX-512 = F, BW, CD, DQ and
// VL). For Amx, requests the AMX registers from Linux. Linux then refuses signal stacks below 12 KB
// in this process, and refuses the request if a thread already has one. isa_enabled() and
// best_isa() make no request if --force-isa or HONE_FORCE_ISA excludes Amx.
bool machine_has(Isa isa);

// Returns true if kernels may use `isa`: machine_has(), limited by --force-isa or HONE_FORCE_ISA.
bool isa_enabled(Isa isa);
// Returns the strongest enabled family.
Isa best_isa();
// Limits this process to families up to `isa`, including Highway's targets. Throws
// Error{Unsupported} if the machine lacks it. Call it once, before the first kernel runs.
void force_isa(Isa isa);
// Applies HONE_FORCE_ISA if it is set.
void force_isa_from_environment();

// Returns the value of HONE_FORCE_KERNEL for one operation ("gemm_q4:avx512vnni,…"), or "" if it is
// not forced. Throws Error{InvalidArgument} that lists the known names if any part of the variable
// names an operation or a variant that does not exist.
std::string forced_kernel(std::string_view op);
// Throws like forced_kernel(). Call it when a program starts.
void check_forced_kernels();

struct CpuInfo {
  std::string model;
  int amd_family = 0;                               // CPUID family; 0: not AMD
  int logical_cpus = 1;                             // online
  Index l1d_bytes = 0, l2_bytes = 0, l3_bytes = 0;  // of CPU 0; 0 if unknown
  Index last_cache_bytes = 0;  // total of all last-level caches of the machine; 0 if unknown
};
const CpuInfo& cpu_info();
// Computes CpuInfo::last_cache_bytes from a folder like /sys/devices/system/cpu. CPUs that share a
// cache list it under the same shared_cpu_list.
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
// Returns the bytes that a memory cgroup may still allocate, from a folder like /sys/fs/cgroup
// (version 1 or 2); nothing if it has no limit. Cached files that were not read lately count as
// free, because the kernel drops them before an allocation fails.
std::optional<Index> cgroup_memory_left(const std::filesystem::path& folder);

}  // namespace hone
