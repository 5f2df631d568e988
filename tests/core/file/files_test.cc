// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/json_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/file/sha256.h"
#include "tests/support/test_data.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

ErrorCategory category_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.category();
  }
  ADD_FAILURE() << "no error";
  return ErrorCategory::Internal;
}

TEST(AtomicFile, appears_only_when_committed) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "a.txt";
  write_text_file(path, "old");
  {
    AtomicFile file(path);
    file.write("new");
    EXPECT_EQ(read_text_file(path), "old");
  }
  EXPECT_EQ(read_text_file(path), "old");
  EXPECT_EQ(test::entries_in(folder.path()), 1u);
  AtomicFile file(path);
  const std::string large(3 << 20, 'x');
  file.write(large);
  file.write("end");
  file.commit();
  EXPECT_EQ(read_text_file(path), large + "end");
  EXPECT_EQ(test::entries_in(folder.path()), 1u);
}

TEST(AtomicFile, hashes_what_it_writes) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "a.bin";
  Sha256 hash;
  AtomicFile file(path);
  file.hash_into(hash);
  for (const std::size_t bytes : {3, 1 << 20, 5, (33 << 20) + 7, 0, 11}) {
    file.write(std::string(bytes, static_cast<char>('a' + bytes % 26)));
  }
  file.commit();
  EXPECT_EQ(hash.hex(), sha256_hex(path));
}

TEST(AtomicFile, a_full_disk_is_one_error_and_leaves_nothing) {
  const test::TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    int status = 1;
    try {
      write_text_file(folder.path() / "big", std::string(4 << 20, 'x'));
    } catch (const Error& error) {
      status = error.category() == ErrorCategory::Io ? 0 : 2;
    }
    ::_exit(status);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(test::entries_in(folder.path()), 0u);
}

TEST(AtomicFile, an_unwritable_folder_is_an_io_error) {
  EXPECT_EQ(category_of([] { AtomicFile file("/proc/hone/nothing"); }), ErrorCategory::Io);
}

TEST(AtomicFolder, replaces_the_old_folder_whole) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "model";
  {
    AtomicFolder first(path);
    write_text_file(first.staging() / "a", "1");
    first.commit();
  }
  {
    AtomicFolder dropped(path);
    write_text_file(dropped.staging() / "a", "2");
  }
  EXPECT_EQ(read_text_file(path / "a"), "1");
  AtomicFolder second(path);
  write_text_file(second.staging() / "b", "3");
  second.commit();
  EXPECT_FALSE(fs::exists(path / "a"));
  EXPECT_EQ(read_text_file(path / "b"), "3");
  EXPECT_EQ(test::entries_in(folder.path()), 1u);
}

TEST(RemoveStaleTemporaries, spares_living_writers_and_other_files) {
  const test::TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  const std::string dead = concat("m.hone-tmp-", static_cast<Index>(child), "-0");
  std::ofstream(folder.path() / dead) << "x";
  std::ofstream(folder.path() / "kept.txt") << "x";
  AtomicFile living(folder.path() / "living");
  remove_stale_temporaries(folder.path());
  EXPECT_FALSE(fs::exists(folder.path() / dead));
  EXPECT_EQ(test::entries_in(folder.path()), 2u);
}

TEST(ReadTextFile, names_what_is_wrong) {
  const test::TemporaryFolder folder;
  write_text_file(folder.path() / "a", "12345");
  EXPECT_EQ(category_of([&] { read_text_file(folder.path() / "none"); }), ErrorCategory::NotFound);
  EXPECT_EQ(category_of([&] { read_text_file(folder.path()); }), ErrorCategory::CorruptFile);
  EXPECT_EQ(category_of([&] { read_text_file(folder.path() / "a", 4); }),
            ErrorCategory::CorruptFile);
  EXPECT_EQ(read_text_file(folder.path() / "a", 5), "12345");
}

TEST(MmapFile, shows_the_bytes_of_the_file) {
  const test::TemporaryFolder folder;
  write_text_file(folder.path() / "a", "hello");
  write_text_file(folder.path() / "empty", "");
  const MmapFile file(folder.path() / "a");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file.bytes().data()), 5), "hello");
  EXPECT_TRUE(MmapFile(folder.path() / "empty").bytes().empty());
  EXPECT_EQ(category_of([&] { MmapFile missing(folder.path() / "none"); }),
            ErrorCategory::NotFound);
  EXPECT_EQ(category_of([&] { MmapFile is_folder(folder.path()); }), ErrorCategory::CorruptFile);
}

TEST(ParseJson, refuses_lies_with_one_sentence) {
  EXPECT_EQ(parse_json("{\"b\":1,\"a\":[2]}", "f").dump(), "{\"b\":1,\"a\":[2]}");
  for (const std::string& text :
       {std::string("{"), std::string("{\"a\":1,\"a\":2}"), std::string("[1e999]"),
        std::string("\"\xff\""), std::string(100000, '['), std::string("")}) {
    EXPECT_EQ(category_of([&] { parse_json(text, "f"); }), ErrorCategory::CorruptFile)
        << text.substr(0, 20);
  }
  EXPECT_NO_THROW(parse_json("[[[1]]]", "f", {.depth = 3}));
  EXPECT_THROW(parse_json("[[[1]]]", "f", {.depth = 2}), Error);
}

}  // namespace
}  // namespace hone
