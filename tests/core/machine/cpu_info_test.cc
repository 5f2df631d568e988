// SPDX-License-Identifier: Apache-2.0
#include "hone/core/machine/cpu_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "hone/core/buffer.h"
#include "hone/core/check.h"
#include "hone/core/error.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Isa, names_are_read_back) {
  for (const Isa isa : all_isas()) EXPECT_EQ(parse_isa(name_of(isa)), isa);
  EXPECT_THROW(parse_isa("mmx"), Error);
}

TEST(Isa, scalar_is_always_there_and_best_is_enabled) {
  EXPECT_TRUE(isa_enabled(Isa::Scalar));
  EXPECT_TRUE(isa_enabled(best_isa()));
  EXPECT_FALSE(machine_has(Isa::Neon) && machine_has(Isa::Sse4));
}

TEST(ForcedKernel, is_looked_up_by_operation) {
  ::setenv("HONE_FORCE_KERNEL", "gemm_q4:avx2,multi_tensor:ref", 1);
  EXPECT_EQ(forced_kernel("gemm_q4"), "avx2");
  EXPECT_EQ(forced_kernel("multi_tensor"), "ref");
  EXPECT_EQ(forced_kernel("gemm"), "");
  EXPECT_EQ(forced_kernel("gemm_q4_f32"), "");
  ::unsetenv("HONE_FORCE_KERNEL");
  EXPECT_EQ(forced_kernel("gemm_q4"), "");
}

TEST(ForcedKernel, what_does_not_exist_is_refused_with_the_list_of_what_does) {
  const auto sentence = [](const char* value) {
    ::setenv("HONE_FORCE_KERNEL", value, 1);
    std::string text = test::refusal(check_forced_kernels);
    EXPECT_EQ(test::refusal([] { forced_kernel("gemm_f32"); }), text) << "whoever asks first";
    ::unsetenv("HONE_FORCE_KERNEL");
    return text;
  };
  EXPECT_EQ(sentence("gemm_q4:avx2,gemm_q8:plain"), "");
  EXPECT_EQ(sentence(""), "");
  EXPECT_THAT(sentence("gemm_q4:plain,gem_q4:avx2"),
              AllOf(HasSubstr("[HONE_FORCE_KERNEL]"), HasSubstr("gemm_q4 gemm_q4_f32 multi_tensor"),
                    HasSubstr("got gem_q4:avx2")));
  EXPECT_THAT(sentence("gemm_q8:avx3"),
              AllOf(HasSubstr("gemm_q8: one of amx avx512vnni avxvnni avx512 avx2 plain"),
                    HasSubstr("got gemm_q8:avx3")));
  EXPECT_THAT(sentence("multi_tensor:tape"), HasSubstr("struct_small struct_large table"));
  for (const char* value : {"gemm_q8", "gemm_q8:", ":plain", "gemm_q8:plain,,gemm_q4:plain"}) {
    EXPECT_THAT(sentence(value), HasSubstr("[HONE_FORCE_KERNEL]")) << value;
  }
}

TEST(UsableCpus, follows_the_affinity_mask) {
  std::thread([] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &mask);
    ASSERT_EQ(::sched_setaffinity(0, sizeof mask, &mask), 0);
    EXPECT_EQ(usable_cpus(), 1);
  }).join();
  EXPECT_GE(usable_cpus(), 1);
  EXPECT_LE(usable_cpus(), cpu_info().logical_cpus);
}

// Two chiplets of two CPUs, each with a cache of 32 MiB, below it caches of one CPU each.
TEST(LastCache, counts_every_cache_of_the_highest_level_once) {
  const test::TemporaryFolder folder;
  const auto write = [&](int cpu, int index, const char* level, const char* type, const char* size,
                         const std::string& shared_by) {
    const auto cache = folder.path() / concat("cpu", cpu) / "cache" / concat("index", index);
    std::filesystem::create_directories(cache);
    std::ofstream(cache / "level") << level << "\n";
    std::ofstream(cache / "type") << type << "\n";
    std::ofstream(cache / "size") << size << "\n";
    std::ofstream(cache / "shared_cpu_list") << shared_by << "\n";
  };
  EXPECT_EQ(read_last_cache_bytes(folder.path()), 0) << "unknown";
  EXPECT_EQ(read_last_cache_bytes(folder.path() / "absent"), 0);
  for (int cpu = 0; cpu < 4; ++cpu) {
    write(cpu, 0, "1", "Data", "32K", concat(cpu));
    write(cpu, 1, "1", "Instruction", "64K", concat(cpu));
  }
  EXPECT_EQ(read_last_cache_bytes(folder.path()), Index{4 * 32} << 10);
  for (int cpu = 0; cpu < 4; ++cpu) write(cpu, 2, "2", "Unified", "512K", concat(cpu));
  EXPECT_EQ(read_last_cache_bytes(folder.path()), Index{4 * 512} << 10);
  for (int cpu = 0; cpu < 4; ++cpu) {
    write(cpu, 3, "3", "Unified", cpu < 2 ? "32768K" : "32M", cpu < 2 ? "0-1" : "2-3");
  }
  EXPECT_EQ(read_last_cache_bytes(folder.path()), Index{64} << 20);
  EXPECT_GE(cpu_info().last_cache_bytes, cpu_info().l3_bytes);
}

TEST(AvailableMemory, is_plausible) {
  EXPECT_GT(available_memory_bytes(), Index{1} << 20);
  EXPECT_LT(available_memory_bytes(), Index{1} << 50);
}

TEST(AvailableMemory, cached_files_of_a_control_group_are_free) {
  const auto left = [](const std::vector<std::pair<std::string, std::string>>& files) {
    const test::TemporaryFolder folder;
    for (const auto& [name, text] : files) std::ofstream(folder.path() / name) << text << "\n";
    return cgroup_memory_left(folder.path());
  };
  EXPECT_EQ(left({}), std::nullopt);
  EXPECT_EQ(left({{"memory.max", "max"}, {"memory.current", "5000"}}), std::nullopt);
  EXPECT_EQ(left({{"memory.max", "9000"}, {"memory.current", "5000"}}), 4000);
  const std::string stat = "anon 1000\nfile 3900\nactive_file 900\ninactive_file 3000\n";
  EXPECT_EQ(left({{"memory.max", "9000"}, {"memory.current", "5000"}, {"memory.stat", stat}}),
            7000);
  EXPECT_EQ(left({{"memory.max", "9000"}, {"memory.current", "9900"}, {"memory.stat", ""}}), 0);
  EXPECT_EQ(left({{"memory.limit_in_bytes", "9000"},
                  {"memory.usage_in_bytes", "8000"},
                  {"memory.stat", "inactive_file 1000\ntotal_inactive_file 4000\n"}}),
            5000)
      << "version 1, with the groups below";
  EXPECT_EQ(left({{"memory.limit_in_bytes", "9223372036854771712"}}), std::nullopt);
}

TEST(Buffer, is_zeroed_and_aligned_at_every_size) {
  for (const Index bytes : {Index{0}, Index{1}, Index{63}, Index{4096}, (Index{2} << 20) - 1,
                            Index{2} << 20, (Index{5} << 20) + 3}) {
    const Buffer buffer(bytes);
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0u);
    for (Index i = 0; i < bytes; i += 61) ASSERT_EQ(buffer.data()[i], std::byte{0});
  }
  Buffer a(100);
  std::byte* data = a.data();
  const Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_THROW(Buffer(-1), Error);
  EXPECT_THROW(Buffer(Index{1} << 60), Error);
}

}  // namespace
}  // namespace hone
