// SPDX-License-Identifier: Apache-2.0
#include "hone/core/file/mmap_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "hone/core/file/file_io.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr Index kPage = 4096;

Index sum_of(std::span<const std::byte> bytes) {
  Index sum = 0;
  for (const std::byte byte : bytes) sum += std::to_integer<Index>(byte);
  return sum;
}

class MmapFileTest : public testing::Test {
 protected:
  // A file of ones, by pages.
  fs::path write(const char* name, Index pages) const {
    const fs::path path = folder_.path() / name;
    write_text_file(path, std::string(static_cast<std::size_t>(pages * kPage), '\1'));
    return path;
  }
  test::TemporaryFolder folder_;
};

TEST_F(MmapFileTest, a_truncated_file_reads_as_zeros_and_is_damaged) {
  const fs::path path = write("f", 64);
  const MmapFile file(path);
  EXPECT_EQ(sum_of(file.bytes()), 64 * kPage);
  fs::resize_file(path, 16 * kPage);
  EXPECT_FALSE(file.is_damaged());  // nothing has been read since
  EXPECT_EQ(sum_of(file.bytes()), 16 * kPage);
  EXPECT_TRUE(file.is_damaged());
  EXPECT_THAT(test::error_of([&] { file.check_intact(); }),
              HasSubstr("The file was truncated while it was read."));
}

TEST_F(MmapFileTest, what_is_truncated_within_a_page_is_seen_by_check_intact) {
  const fs::path path = write("f", 2);
  const MmapFile file(path);
  file.check_intact();
  fs::resize_file(path, 2 * kPage - 1);
  EXPECT_EQ(sum_of(file.bytes()), 2 * kPage - 1);  // the last byte is 0, and no signal came
  EXPECT_FALSE(file.is_damaged());
  EXPECT_THAT(test::error_of([&] { file.check_intact(); }), HasSubstr("changed while it was read"));
}

TEST_F(MmapFileTest, a_file_that_is_replaced_or_removed_stays_as_it_was) {
  const fs::path path = write("f", 4);
  const MmapFile file(path);
  write_text_file(path, "another file of this name");
  file.check_intact();
  fs::remove(path);
  file.check_intact();
  EXPECT_EQ(sum_of(file.bytes()), 4 * kPage);
}

TEST_F(MmapFileTest, only_the_damaged_one_of_many_mappings_is_damaged) {
  std::vector<MmapFile> files;  // more than the first chunk of the registry has room for
  for (int i = 0; i < 80; ++i) files.emplace_back(write("same", 2));
  fs::resize_file(folder_.path() / "same", 0);  // the last one; the others were replaced
  Index sum = 0;
  for (const MmapFile& file : files) sum += sum_of(file.bytes());
  EXPECT_EQ(sum, 79 * 2 * kPage);
  for (std::size_t i = 0; i < files.size(); ++i) EXPECT_EQ(files[i].is_damaged(), i == 79) << i;
  std::swap(files[0], files[79]);
  EXPECT_TRUE(files[0].is_damaged());
  files.clear();
  EXPECT_FALSE(MmapFile(write("same", 1)).is_damaged());  // takes a slot that was damaged
}

// Threads read their own truncated files while others map and unmap.
TEST_F(MmapFileTest, faults_of_many_threads_are_told_apart) {
  std::atomic<bool> stop{false};
  std::thread churn([&] {
    const fs::path path = write("churn", 1);
    while (!stop) EXPECT_EQ(sum_of(MmapFile(path).bytes()), kPage);
  });
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) {
        const fs::path path = write(("r" + std::to_string(i)).c_str(), 8);
        const MmapFile file(path);
        const bool is_cut = (i + round) % 2 == 0;
        if (is_cut) fs::resize_file(path, 3 * kPage);
        EXPECT_EQ(sum_of(file.bytes()), (is_cut ? 3 : 8) * kPage);
        EXPECT_EQ(file.is_damaged(), is_cut);
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  stop = true;
  churn.join();
}

TEST_F(MmapFileTest, copies_on_write_leave_the_file_alone) {
  const fs::path path = write("f", 4);
  MmapFile file(path, MapAccess::CopyOnWrite);
  std::ranges::fill(file.writable_bytes().subspan(kPage, kPage), std::byte{7});
  EXPECT_EQ(sum_of(file.bytes()), (1 + 7 + 1 + 1) * kPage);
  EXPECT_EQ(sum_of(MmapFile(path).bytes()), 4 * kPage);
  fs::resize_file(path, kPage);
  file.writable_bytes()[3 * kPage] = std::byte{5};  // a page of zeros that can be written to
  EXPECT_EQ(file.bytes()[3 * kPage], std::byte{5});
  EXPECT_TRUE(file.is_damaged());
  EXPECT_THAT(test::error_of([&] { MmapFile(path).writable_bytes(); }), HasSubstr("for reading"));
}

TEST_F(MmapFileTest, dropped_pages_are_read_again) {
  const fs::path path = write("f", 32);
  const MmapFile file(path);
  EXPECT_EQ(sum_of(file.bytes()), 32 * kPage);
  file.drop_pages(file.bytes());
  EXPECT_EQ(sum_of(file.bytes()), 32 * kPage);
}

void read_beyond_the_end(int descriptor) {
  auto* const bytes = static_cast<volatile char*>(
      ::mmap(nullptr, 2 * kPage, PROT_READ, MAP_PRIVATE, descriptor, 0));
  static_cast<void>(bytes[kPage]);
}

// Signals that are not about hone's mappings do what they do without hone. The children begin
// anew, so that the first mapping installs the handler there.
class MmapFileDeathTest : public MmapFileTest {
 protected:
  MmapFileDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  // Removes the child's folder, because the signal leaves it no time to.
  MmapFile map_alone(const fs::path& path) const {
    MmapFile file(path);
    fs::remove_all(folder_.path());
    return file;
  }
};

TEST_F(MmapFileDeathTest, a_fault_elsewhere_reaches_the_handler_before) {
  const fs::path path = write("f", 1);
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, [](int) { ::_exit(42); });
        const int descriptor = open_regular_file(path);
        const MmapFile file = map_alone(path);
        read_beyond_the_end(descriptor);
      },
      testing::ExitedWithCode(42), "");
}

TEST_F(MmapFileDeathTest, a_fault_elsewhere_ends_the_process) {
  const fs::path path = write("f", 1);
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, SIG_DFL);
        const int descriptor = open_regular_file(path);
        const MmapFile file = map_alone(path);
        read_beyond_the_end(descriptor);
      },
      testing::KilledBySignal(SIGBUS), "");
}

TEST_F(MmapFileDeathTest, a_signal_that_was_sent_ends_the_process_unless_ignored) {
  const fs::path path = write("f", 1);
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, SIG_DFL);
        const MmapFile file = map_alone(path);
        ::raise(SIGBUS);
      },
      testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, SIG_IGN);
        const MmapFile file = map_alone(path);
        ::raise(SIGBUS);
        ::_exit(7);
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace hone
