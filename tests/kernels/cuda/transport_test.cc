// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/cuda/transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/kernels/kernel_support.h"

namespace hone::kernels::cuda {
namespace {

using kernels::test::error_of;
using testing::HasSubstr;

constexpr TransportSupport kNew{12010, 90}, kOldDriver{12000, 90}, kOldDevice{12010, 61};

WorkList list_of(Index tensors, Index elements) {
  return WorkList(std::vector<Index>(static_cast<std::size_t>(tensors), elements), 1024);
}

TEST(Transport, names_are_read_back) {
  for (const auto transport :
       {Transport::Auto, Transport::StructSmall, Transport::StructLarge, Transport::DeviceTable}) {
    EXPECT_EQ(parse_transport(name_of(transport)), transport);
  }
  EXPECT_THAT(error_of([] { parse_transport("pointer"); }), HasSubstr("struct_large or table"));
}

TEST(Transport, auto_takes_the_smallest_struct_that_holds_the_list_else_the_table) {
  const auto choose = [](Index tensors, Index elements, const TransportSupport& support) {
    return choose_transport(Transport::Auto, list_of(tensors, elements), 4, support);
  };
  EXPECT_EQ(choose(0, 0, kNew), Transport::StructSmall);
  EXPECT_EQ(choose(36, 8 * 1024, kNew), Transport::StructSmall);
  EXPECT_EQ(choose(37, 8, kNew), Transport::StructLarge);
  EXPECT_EQ(choose(36, 9 * 1024, kNew), Transport::StructLarge);
  EXPECT_EQ(choose(253, 8, kNew), Transport::DeviceTable);
  EXPECT_EQ(choose(37, 8, kOldDriver), Transport::DeviceTable);
  EXPECT_EQ(choose(37, 8, kOldDevice), Transport::DeviceTable);
}

TEST(Transport, large_structs_are_refused_where_driver_or_device_cannot) {
  for (const TransportSupport& support : {kOldDriver, kOldDevice}) {
    EXPECT_THAT(
        error_of([&] { choose_transport(Transport::StructLarge, list_of(1, 1), 4, support); }),
        HasSubstr("12.1"));
  }
  EXPECT_EQ(choose_transport(Transport::StructLarge, list_of(1, 1), 4, kNew),
            Transport::StructLarge);
}

TEST(Transport, a_limit_on_launches_is_a_refusal_that_names_the_capacity) {
  EXPECT_NO_THROW(check_launches(Transport::StructSmall, list_of(36, 5), 4, 1));
  EXPECT_NO_THROW(check_launches(Transport::StructSmall, list_of(37, 5), 4, 0));
  EXPECT_NO_THROW(check_launches(Transport::DeviceTable, list_of(5000, 5), 4, 1));
  const auto error = error_of([] { check_launches(Transport::StructSmall, list_of(37, 5), 4, 1); });
  EXPECT_THAT(error, HasSubstr("at most 1 launches of struct_small (36 tensors and 320 blocks"));
  EXPECT_THAT(error, HasSubstr("got 2 for 37 tensors"));
  EXPECT_EQ(count_launches(Transport::StructLarge, list_of(2000, 1024), 4), 8);
  EXPECT_EQ(count_launches(Transport::DeviceTable, list_of(2000, 1024), 4), 1);
}

TEST(Transport, the_environment_wins) {
  const char* before = std::getenv("HONE_FORCE_KERNEL");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("HONE_FORCE_KERNEL", "gemm_q4:avx2,multi_tensor:table", 1);
  EXPECT_EQ(forced_transport(Transport::StructSmall), Transport::DeviceTable);
  ::setenv("HONE_FORCE_KERNEL", "multi_tensor:ref", 1);
  EXPECT_EQ(forced_transport(Transport::StructSmall), Transport::StructSmall);
  ::setenv("HONE_FORCE_KERNEL", "multi_tensor:tape", 1);
  EXPECT_THROW(forced_transport(Transport::Auto), Error);
  if (before == nullptr) {
    ::unsetenv("HONE_FORCE_KERNEL");
  } else {
    ::setenv("HONE_FORCE_KERNEL", kept.c_str(), 1);
  }
}

}  // namespace
}  // namespace hone::kernels::cuda
