// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/roof/memory_roofs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hone/core/machine/cpu_info.h"
#include "hone/core/thread/thread_pool.h"

namespace hone::kernels {
namespace {

constexpr Index kMiB = Index{1} << 20;

TEST(MemoryShare, is_stated_from_four_times_the_last_level_cache_on) {
  EXPECT_EQ(why_no_memory_share(4 * 32 * kMiB, 32 * kMiB), "");
  EXPECT_EQ(why_no_memory_share(1200 * kMiB, 32 * kMiB), "");
  EXPECT_THAT(why_no_memory_share(4 * 32 * kMiB - 1, 32 * kMiB),
              testing::HasSubstr("the 128 MiB read are less than 4 times the last-level cache of "
                                 "32 MiB"));
  EXPECT_THAT(why_no_memory_share(160 * kMiB, 64 * kMiB), testing::HasSubstr("64 MiB"));
  EXPECT_NE(why_no_memory_share(0, 32 * kMiB), "");
}

TEST(MemoryShare, takes_an_unknown_cache_as_32_mib) {
  EXPECT_EQ(why_no_memory_share(128 * kMiB, 0), "");
  EXPECT_THAT(why_no_memory_share(127 * kMiB, 0), testing::HasSubstr("32 MiB"));
}

// Otherwise the limit itself would be that of a cache.
TEST(MemoryProbe, streams_over_data_of_which_a_share_is_stated) {
  ThreadPool pool(1);
  const MemoryProbe read = make_memory_probe(MemoryTraffic::Read, pool);
  const MemoryProbe update = make_memory_probe(MemoryTraffic::Update, pool);
  EXPECT_EQ(update.bytes, 2 * read.bytes);
  if (available_memory_bytes() < 16 * kBeyondCaches * cpu_info().last_cache_bytes) GTEST_SKIP();
  EXPECT_EQ(why_no_memory_share(static_cast<Index>(read.bytes), cpu_info().last_cache_bytes), "");
}

}  // namespace
}  // namespace hone::kernels
