// SPDX-License-Identifier: Apache-2.0
#include "hone/core/machine/machine_card.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "hone/core/machine/cpu_info.h"
#include "hone/core/thread/thread_pool.h"

namespace hone {
namespace {

TEST(MachineCard, names_what_every_number_depends_on) {
  ThreadPool pool(2);
  const Json card = machine_card(pool);
  EXPECT_EQ(card["threads"], 2);
  EXPECT_FALSE(card["cpu"].get<std::string>().empty());
  EXPECT_GE(card["cores"].get<int>(), 1);
  EXPECT_LE(card["usable_cores"].get<int>(), card["cores"].get<int>());
  EXPECT_TRUE(card.contains("quota"));
  EXPECT_NE(card["hone"].get<std::string>().find("hone "), std::string::npos);
}

TEST(MachineCard, lists_the_instruction_sets_that_may_be_used) {
  std::vector<std::string> enabled;
  for (const Isa isa : all_isas()) {
    if (isa_enabled(isa)) enabled.emplace_back(name_of(isa));
  }
  EXPECT_EQ(describe_machine()["isa"].get<std::vector<std::string>>(), enabled);
  EXPECT_EQ(enabled.front(), "scalar");
}

TEST(MachineCard, of_one_machine_differs_in_the_threads_alone) {
  ThreadPool pool(3);
  Json card = machine_card(pool);
  EXPECT_EQ(card["threads"], 3);
  card.erase("threads");
  card.erase("available_memory_bytes");
  Json machine = describe_machine();
  machine.erase("available_memory_bytes");
  EXPECT_EQ(card, machine);
}

}  // namespace
}  // namespace hone
