// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/mmap_file.h"
#include "tests/support/test_data.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

void expect_io_error(const std::function<void()>& call, std::string_view file) {
  try {
    call();
    ADD_FAILURE() << "no error for " << file;
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::Io) << error.what();
    EXPECT_NE(std::string(error.what()).find(file), std::string::npos) << error.what();
  }
}

TEST(AtomicFile, leaves_nothing_beside_a_folder_that_it_cannot_replace) {
  const test::TemporaryFolder folder;
  fs::create_directories(folder.path() / "taken" / "inner");
  expect_io_error([&] { write_text_file(folder.path() / "taken", "text"); }, "taken");
  EXPECT_EQ(test::entries_in(folder.path()), 1u);
  EXPECT_TRUE(fs::is_directory(folder.path() / "taken" / "inner"));
}

TEST(AtomicFile, a_parent_that_is_absent_or_a_file_is_an_io_error) {
  const test::TemporaryFolder folder;
  write_text_file(folder.path() / "file", "x");
  expect_io_error([&] { AtomicFile file(folder.path() / "none" / "a"); }, "none");
  expect_io_error([&] { AtomicFile file(folder.path() / "file" / "a"); }, "file");
  expect_io_error([&] { AtomicFile file(folder.path() / std::string(300, 'n')); }, "nnn");
}

TEST(AtomicFile, errors_in_a_folder_that_is_being_written_name_the_folder_meant) {
  const test::TemporaryFolder folder;
  const AtomicFolder model(folder.path() / "model");
  try {
    write_text_file(model.staging() / "absent" / "x", "text");
    FAIL();
  } catch (const Error& error) {
    const std::string wanted = concat("[", (folder.path() / "model/absent/x").string(), "]");
    EXPECT_EQ(std::string(error.what()).find(wanted), 0u) << error.what();
  }
}

// In a container every run may have the same process id.
TEST(AtomicFile, temporaries_of_a_killed_run_with_this_process_id_do_not_matter) {
  const test::TemporaryFolder folder;
  for (int n = 0; n < 2000; ++n) {
    for (const char* name : {"file", "model"}) {
      std::ofstream(folder.path() / concat(name, ".hone-tmp-", ::getpid(), "-", n));
    }
  }
  write_text_file(folder.path() / "file", "text");
  AtomicFolder model(folder.path() / "model");
  write_text_file(model.staging() / "x", "text");
  model.commit();
  EXPECT_EQ(read_text_file(folder.path() / "file"), "text");
  EXPECT_EQ(read_text_file(folder.path() / "model" / "x"), "text");
}

TEST(AtomicFile, empty_files_and_bytes_of_every_value_survive) {
  const test::TemporaryFolder folder;
  write_text_file(folder.path() / "empty", "");
  EXPECT_EQ(fs::file_size(folder.path() / "empty"), 0u);
  std::string bytes;
  for (int i = 0; i < 256 * 5000; ++i) bytes.push_back(static_cast<char>(i));
  AtomicFile file(folder.path() / "all");
  for (std::size_t at = 0; at < bytes.size(); at += 4999)
    file.write(std::string_view(bytes).substr(at, 4999));
  EXPECT_EQ(file.bytes_written(), static_cast<Index>(bytes.size()));
  file.commit();
  EXPECT_EQ(read_text_file(folder.path() / "all"), bytes);
}

TEST(AtomicFile, two_writers_of_one_name_do_not_mix) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  AtomicFile first(path), second(path);
  first.write("first");
  second.write("second, longer");
  second.commit();
  EXPECT_EQ(read_text_file(path), "second, longer");
  first.commit();
  EXPECT_EQ(read_text_file(path), "first");
  EXPECT_EQ(test::entries_in(folder.path()), 1u);
}

TEST(AtomicFolder, two_writers_of_one_name_both_succeed_and_the_later_stays) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "model";
  AtomicFolder first(path), second(path);
  write_text_file(first.staging() / "x", "first");
  write_text_file(second.staging() / "x", "second");
  second.commit();
  first.commit();
  EXPECT_EQ(read_text_file(path / "x"), "first");
  EXPECT_EQ(test::entries_in(folder.path()), 1u);
}

TEST(AtomicFile, a_relative_name_lands_in_the_working_folder) {
  const test::TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  write_text_file("plain", "x");
  fs::current_path(before);
  EXPECT_EQ(read_text_file(folder.path() / "plain"), "x");
}

TEST(AtomicFile, replaces_neither_pipe_nor_device) {
  const test::TemporaryFolder folder;
  const fs::path pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_io_error([&] { write_text_file(pipe, "x"); }, "pipe");
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_EQ(test::entries_in(folder.path()), 1u);
}

TEST(AtomicFile, follows_a_symbolic_link) {
  const test::TemporaryFolder folder;
  const fs::path target = folder.path() / "target", link = folder.path() / "link";
  write_text_file(target, "old");
  fs::create_symlink("target", link);
  write_text_file(link, "new");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(read_text_file(target), "new");
}

TEST(AtomicFolder, follows_a_symbolic_link) {
  const test::TemporaryFolder folder;
  fs::create_directory(folder.path() / "target");
  fs::create_directory_symlink("target", folder.path() / "link");
  AtomicFolder written(folder.path() / "link");
  write_text_file(written.staging() / "a", "1");
  written.commit();
  EXPECT_TRUE(fs::is_symlink(folder.path() / "link"));
  EXPECT_EQ(read_text_file(folder.path() / "target" / "a"), "1");
}

TEST(OutputTarget, resolves_what_is_there_and_what_is_not) {
  const test::TemporaryFolder folder;
  const fs::path root = fs::canonical(folder.path());
  fs::create_directories(root / "a" / "b");
  fs::create_symlink("a/b", root / "to_b");
  fs::create_symlink("new/../a", root / "to_a");
  fs::create_symlink("new/../to_b", root / "to_to_b");
  for (const auto& [path, target] :
       std::initializer_list<std::pair<const char*, const char*>>{{"a", "a"},
                                                                  {"a/", "a"},
                                                                  {"new/.", "new"},
                                                                  {"new/sub/..", "new"},
                                                                  {"new/../a", "a"},
                                                                  {"new/x/../../a/c", "a/c"},
                                                                  {"to_b/../c", "a/c"},
                                                                  {"to_b", "a/b"},
                                                                  {"to_a", "a"},
                                                                  {"to_to_b", "a/b"},
                                                                  {"new/../to_b", "a/b"},
                                                                  {"new/../to_b/c", "a/b/c"},
                                                                  {"x/y", "x/y"}}) {
    EXPECT_EQ(output_target(root / path), root / target) << path;
  }
}

// The folder appears while its content is written, or was there before.
TEST(AtomicFolder, keeps_what_its_check_refuses_in_the_end) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "model";
  const auto check = [](const fs::path& old) {
    HONE_REQUIRE(!fs::exists(old / "precious"), old.string(), "It is precious.");
  };
  const auto write = [&](const std::function<void()>& meanwhile) {
    AtomicFolder written(path, check);
    write_text_file(written.staging() / "a", "1");
    meanwhile();
    written.commit();
  };
  for (int round = 0; round < 2; ++round) {
    if (round == 1) write([] {});
    try {
      write([&] {
        fs::create_directories(path);
        write_text_file(path / "precious", "x");
      });
      ADD_FAILURE() << "was replaced";
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), concat("[", path.string(), "] It is precious."));
    }
    EXPECT_EQ(read_text_file(path / "precious"), "x");
    EXPECT_EQ(test::entries_in(folder.path()), 1u) << "a temporary stays";
    EXPECT_THROW(AtomicFolder(path, check), Error);
    fs::remove_all(path);
  }
}

TEST(AtomicFolder, does_not_replace_the_folder_in_which_the_program_runs) {
  const test::TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::create_directory(folder.path() / "in");
  fs::current_path(folder.path() / "in");
  for (const char* path : {".", "", "..", "../in"}) EXPECT_THROW(AtomicFolder{path}, Error) << path;
  expect_io_error([] { write_text_file("out/", "x"); }, "out/");
  fs::current_path(before);
  EXPECT_EQ(test::entries_in(folder.path()), 1u);
}

TEST(AtomicFile, follows_links_to_what_is_not_there_yet) {
  const test::TemporaryFolder folder;
  fs::create_directory(folder.path() / "there");
  fs::create_symlink("there/second", folder.path() / "link");
  fs::create_symlink("file", folder.path() / "there" / "second");
  write_text_file(folder.path() / "link", "1");
  EXPECT_TRUE(fs::is_symlink(folder.path() / "link"));
  EXPECT_EQ(read_text_file(folder.path() / "there" / "file"), "1");
  fs::create_symlink(folder.path() / "there" / "new", folder.path() / "to_folder");
  AtomicFolder written(folder.path() / "to_folder");
  write_text_file(written.staging() / "a", "1");
  written.commit();
  EXPECT_TRUE(fs::is_symlink(folder.path() / "to_folder"));
  EXPECT_EQ(read_text_file(folder.path() / "there" / "new" / "a"), "1");
  fs::create_symlink("loop", folder.path() / "loop");
  EXPECT_THROW(write_text_file(folder.path() / "loop", "1"), Error);
}

TEST(AtomicFile, a_link_that_leads_out_of_a_linked_folder_leads_where_the_kernel_goes) {
  const test::TemporaryFolder folder;
  fs::create_directories(folder.path() / "b" / "c");
  fs::create_symlink("b/c", folder.path() / "link");
  fs::create_symlink("../real", folder.path() / "b" / "c" / "out");
  write_text_file(folder.path() / "real", "kept");
  write_text_file(folder.path() / "link" / "out", "new");
  EXPECT_EQ(read_text_file(folder.path() / "real"), "kept");
  EXPECT_EQ(read_text_file(folder.path() / "b" / "real"), "new");
  EXPECT_EQ(read_text_file(folder.path() / "link" / "out"), "new");
}

// Whether a check of (out, input) refuses them.
auto refusals_of(void (*check)(const fs::path& out, const fs::path& input)) {
  return [check](const fs::path& out, const fs::path& input) {
    try {
      check(out, input);
      return false;
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::InvalidArgument);
      return true;
    }
  };
}

TEST(CheckOutputSpares, refuses_what_would_be_replaced_with_it) {
  const test::TemporaryFolder folder;
  const fs::path model = folder.path() / "model", inside = model / "config.json";
  fs::create_directory(model);
  write_text_file(inside, "{}");
  write_text_file(folder.path() / "model2", "beside, with a longer name");
  fs::create_symlink("model", folder.path() / "link");
  fs::create_symlink("model/config.json", folder.path() / "to_config");
  fs::create_hard_link(inside, folder.path() / "hard");
  const auto refused = refusals_of(check_output_spares);
  const fs::path root = folder.path();
  EXPECT_TRUE(refused(model, model) && refused(root / "link", model));
  EXPECT_TRUE(refused(inside, model) && refused(root / "to_config", model)) << "a part of it";
  EXPECT_TRUE(refused(model, inside) && refused(root / "link", inside)) << "it holds an input";
  EXPECT_TRUE(refused(root / "hard", inside));
  EXPECT_FALSE(refused(root / "model2", model) || refused(model, root / "model2"));
  fs::create_directory(root / "view");
  fs::create_symlink(inside, root / "view" / "config.json");
  EXPECT_TRUE(refused(model, root / "view")) << "what its link leads to would be gone";
  EXPECT_FALSE(refused(root / "model2", root / "view"));
  EXPECT_FALSE(refused(model / "new", model)) << "not there: nothing is replaced";
  EXPECT_FALSE(refused(model, {}) || refused(model, root / "none"));
}

TEST(CheckOutputExcludes, refuses_what_would_be_removed_with_the_output) {
  const test::TemporaryFolder folder;
  const fs::path root = folder.path(), part = root / "part";
  fs::create_directories(part / "images");
  fs::create_directory(root / "part2");
  fs::create_symlink("part/images", root / "link");
  const auto refused = refusals_of(check_output_excludes);
  EXPECT_TRUE(refused(part, part) && refused(part, part / "images") &&
              refused(part, root / "link"));
  EXPECT_FALSE(refused(part / "images", part)) << "what lies beside it in the input stays";
  EXPECT_FALSE(refused(part, root / "part2") || refused(root / "none", part) || refused(part, {}));
}

TEST(CheckOutputOutside, refuses_what_would_lie_within_whether_it_exists_or_not) {
  const test::TemporaryFolder folder;
  const fs::path root = folder.path(), data = root / "data";
  fs::create_directories(data / "there");
  fs::create_directory(root / "data2");
  fs::create_symlink("data", root / "link");
  write_text_file(root / "file", "x");
  const auto refused = refusals_of(check_output_outside);
  for (const fs::path& input : {data, data / "", root / "link", root / "data2" / ".." / "data"}) {
    for (const fs::path& out :
         {data, data / "", data / "there", data / "new" / "run", data / "new" / "", root / "link",
          root / "link" / "new", root / "none" / ".." / "data" / "new"}) {
      EXPECT_TRUE(refused(out, input)) << out << ' ' << input;
    }
    for (const fs::path& out : {root, root / "data2", root / "data3", data / ".." / "new"}) {
      EXPECT_FALSE(refused(out, input)) << out << ' ' << input;
    }
  }
  EXPECT_FALSE(refused(root / "file", root / "file")) << "no folder";
  EXPECT_FALSE(refused(root / "none" / "x", root / "none"));
  EXPECT_FALSE(refused(root, {}));
}

TEST(ReadTextFile, does_not_wait_for_a_pipe) {
  const test::TemporaryFolder folder;
  const fs::path pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const auto& read : {std::function<void()>([&] { read_text_file(pipe); }),
                           std::function<void()>([&] { MmapFile mapped(pipe); })}) {
    try {
      read();
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::CorruptFile);
      EXPECT_NE(std::string(error.what()).find("got a pipe"), std::string::npos) << error.what();
    }
  }
}

TEST(AtomicFolder, takes_names_with_a_slash_and_parents_that_are_absent) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "new" / "model";
  AtomicFolder out(path.string() + "/");
  fs::create_directory(out.staging() / "inner");
  write_text_file(out.staging() / "inner" / "a", "1");
  EXPECT_FALSE(fs::exists(path));
  out.commit();
  EXPECT_EQ(read_text_file(path / "inner" / "a"), "1");
  EXPECT_EQ(test::entries_in(folder.path() / "new"), 1u);
}

TEST(AtomicFolder, refuses_a_file_of_that_name_and_leaves_it) {
  const test::TemporaryFolder folder;
  write_text_file(folder.path() / "file", "x");
  expect_io_error([&] { AtomicFolder out(folder.path() / "file"); }, "file");
  expect_io_error([&] { AtomicFolder out(folder.path() / "file" / "below"); }, "below");
  EXPECT_EQ(read_text_file(folder.path() / "file"), "x");
  EXPECT_EQ(test::entries_in(folder.path()), 1u);
}

TEST(AtomicFolder, a_name_that_no_file_system_takes_is_an_io_error) {
  const test::TemporaryFolder folder;
  expect_io_error([&] { AtomicFolder out(folder.path() / std::string(300, 'n')); }, "nnn");
  EXPECT_EQ(test::entries_in(folder.path()), 0u);
}

TEST(AtomicFolder, a_commit_that_fails_keeps_the_old_folder) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "model";
  fs::create_directory(path);
  write_text_file(path / "a", "old");
  {
    AtomicFolder out(path);
    write_text_file(out.staging() / "a", "new");
    fs::remove_all(out.staging());  // as if somebody had tidied up meanwhile
    expect_io_error([&] { out.commit(); }, "model");
  }
  EXPECT_EQ(read_text_file(path / "a"), "old");
  EXPECT_EQ(test::entries_in(folder.path()), 1u);
}

TEST(AtomicFolder, an_empty_folder_and_an_empty_replacement_are_folders) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "model";
  AtomicFolder(path).commit();
  EXPECT_TRUE(fs::is_empty(path));
  write_text_file(path / "a", "1");
  AtomicFolder(path).commit();
  EXPECT_TRUE(fs::is_empty(path));
}

TEST(RemoveStaleTemporaries, leaves_names_that_only_look_like_its_own) {
  const test::TemporaryFolder folder;
  const std::vector<std::string> kept{"x.hone-tmp-",
                                      "x.hone-tmp-0-1",
                                      "x.hone-tmp-abc-1",
                                      "x.hone-tmp--5-1",
                                      concat("x.hone-tmp-", ::getpid(), "-9"),
                                      "hone-tmp-1-1",
                                      "x.hone-tmp-1-0"};  // process 1 lives
  for (const std::string& name : kept) std::ofstream(folder.path() / name) << "x";
  remove_stale_temporaries(folder.path());
  for (const std::string& name : kept) EXPECT_TRUE(fs::exists(folder.path() / name)) << name;
  EXPECT_NO_THROW(remove_stale_temporaries(folder.path() / "none"));
}

// The id of a process that has ended.
pid_t ended_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

TEST(RemoveStaleTemporaries, leaves_those_of_processes_that_it_cannot_see) {
  const test::TemporaryFolder folder;
  const fs::path file = folder.path() / concat("a.hone-tmp-", ended_process(), "-0"),
                 inner = folder.path() / concat("b.hone-tmp-", ended_process(), "-0");
  write_text_file(folder.path() / "a", "1");
  fs::rename(folder.path() / "a", file);
  fs::create_directory(inner);
  std::vector<int> descriptors;
  for (const fs::path& path : {file, inner}) {
    descriptors.push_back(::open(path.c_str(), O_RDONLY));
    ASSERT_EQ(::flock(descriptors.back(), LOCK_EX | LOCK_NB), 0);  // as a process elsewhere does
  }
  remove_stale_temporaries(folder.path());
  EXPECT_EQ(test::entries_in(folder.path()), 2u);
  for (const int descriptor : descriptors) ::close(descriptor);
  remove_stale_temporaries(folder.path());
  EXPECT_EQ(test::entries_in(folder.path()), 0u);
}

TEST(RemoveStaleTemporaries, writers_lock_their_temporaries) {
  const test::TemporaryFolder folder;
  const AtomicFile file(folder.path() / "a");
  const AtomicFolder written(folder.path() / "b");
  ASSERT_EQ(test::entries_in(folder.path()), 2u);
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    const int descriptor = ::open(entry.path().c_str(), O_RDONLY);
    EXPECT_NE(::flock(descriptor, LOCK_EX | LOCK_NB), 0) << entry.path();
    EXPECT_EQ(errno, EWOULDBLOCK);
    ::close(descriptor);
  }
}

}  // namespace
}  // namespace hone
