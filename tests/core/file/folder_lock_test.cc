// SPDX-License-Identifier: Apache-2.0
#include "hone/core/file/folder_lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "tests/support/test_data.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

std::optional<ErrorCategory> refusal_of(const fs::path& folder) {
  try {
    const FolderLock lock(folder);
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(folder.string()), std::string::npos) << error.what();
    return error.category();
  }
  return std::nullopt;
}

TEST(FolderLock, one_at_a_time_and_free_again_afterwards) {
  const test::TemporaryFolder folder;
  {
    const FolderLock lock(folder.path());
    EXPECT_EQ(refusal_of(folder.path()), ErrorCategory::Resource);
    EXPECT_EQ(refusal_of(folder.path()), ErrorCategory::Resource);
  }
  EXPECT_EQ(refusal_of(folder.path()), std::nullopt);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(FolderLock, takes_away_only_folders_that_it_made_and_that_stayed_empty) {
  const test::TemporaryFolder folder;
  { const FolderLock lock(folder.path() / "a" / "b"); }
  EXPECT_TRUE(fs::is_empty(folder.path()));
  {
    const FolderLock lock(folder.path() / "a" / "b");
    write_text_file(folder.path() / "a" / "kept", "x");
  }
  EXPECT_TRUE(fs::exists(folder.path() / "a" / "kept"));
  EXPECT_FALSE(fs::exists(folder.path() / "a" / "b"));
}

TEST(FolderLock, a_name_that_is_no_folder_is_an_io_error) {
  const test::TemporaryFolder folder;
  write_text_file(folder.path() / "file", "x");
  EXPECT_EQ(refusal_of(folder.path() / "file"), ErrorCategory::Io);
  EXPECT_EQ(refusal_of(folder.path() / "file" / "inner"), ErrorCategory::Io);
  fs::create_symlink(folder.path() / "nowhere", folder.path() / "link");
  EXPECT_EQ(refusal_of(folder.path() / "link"), ErrorCategory::Io);
  EXPECT_EQ(refusal_of(""), ErrorCategory::InvalidArgument);
}

TEST(FolderLock, a_killed_process_leaves_no_lock) {
  const test::TemporaryFolder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const FolderLock lock(folder.path());
    write_text_file(folder.path() / "ready", "");
    for (;;) ::pause();
  }
  while (!fs::exists(folder.path() / "ready")) ::usleep(1000);
  EXPECT_EQ(refusal_of(folder.path()), ErrorCategory::Resource);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::exists(folder.path() / ".lock"));
  EXPECT_EQ(refusal_of(folder.path()), std::nullopt);
}

// Every holder removes the file that the next one locks: no two may hold it at once.
TEST(FolderLock, never_has_two_holders) {
  const test::TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  std::atomic<int> holders{0}, taken{0}, most{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        try {
          const FolderLock lock(run);
          const int now = ++holders;
          ++taken;
          for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
          }
          --holders;
        } catch (const Error& error) {
          EXPECT_EQ(error.category(), ErrorCategory::Resource) << error.what();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 1);
  EXPECT_GT(taken, 1);
  EXPECT_FALSE(fs::exists(run / ".lock"));
}

}  // namespace
}  // namespace hone
