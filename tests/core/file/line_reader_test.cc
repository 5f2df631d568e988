// SPDX-License-Identifier: Apache-2.0
#include "hone/core/file/line_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/philox.h"
#include "tests/support/test_data.h"

namespace hone {
namespace {

using Next = LineReader::Next;

class LineReaderTest : public testing::Test {
 protected:
  std::string path() const { return (folder_.path() / "lines").string(); }
  test::TemporaryFolder folder_;
};

// The oracle: std::string::find, and a line too long is "(long)".
std::vector<std::string> split(const std::string& text, std::size_t most) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(end - at > most ? "(long)" : text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

TEST_F(LineReaderTest, gives_every_line_and_skips_what_is_too_long) {
  PhiloxStream random(3);
  for (int round = 0; round < 40; ++round) {
    std::string text;
    for (std::uint32_t i = random.below(60); i > 0; --i) {
      const std::uint32_t length = random.below(10) == 0 ? random.below(700'000) : random.below(40);
      text += std::string(length, static_cast<char>('a' + random.below(26)));
      if (i > 1 || random.below(2) == 0) text += '\n';
    }
    write_text_file(path(), text);
    LineReader reader(path(), 300'000);
    std::vector<std::string> lines;
    std::string line;
    for (Next next; (next = reader.next(line)) != Next::End;) {
      ASSERT_NE(next, Next::None);
      lines.push_back(next == Next::TooLong ? "(long)" : line);
    }
    EXPECT_EQ(lines, split(text, 300'000));
    EXPECT_EQ(reader.bytes(), static_cast<Index>(text.size()));
    EXPECT_EQ(reader.next(line), Next::End);
  }
}

TEST_F(LineReaderTest, of_a_pipe_says_when_there_is_none_yet) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  LineReader reader(concat("/dev/fd/", ends[0]), 100);
  ::close(ends[0]);
  const auto write = [&](std::string_view text) {
    ASSERT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  };
  std::string line;
  EXPECT_EQ(reader.next(line), Next::None);
  write("one\ntw");
  EXPECT_EQ(reader.next(line), Next::Line);
  EXPECT_EQ(line, "one");
  EXPECT_EQ(reader.next(line), Next::None);
  write("o\n\nthree");
  EXPECT_EQ(reader.next(line), Next::Line);
  EXPECT_EQ(line, "two");
  EXPECT_EQ(reader.next(line, 10), Next::Line);
  EXPECT_EQ(line, "");
  EXPECT_EQ(reader.next(line), Next::None);
  ::close(ends[1]);
  EXPECT_EQ(reader.next(line), Next::Line);
  EXPECT_EQ(line, "three");
  EXPECT_EQ(reader.next(line), Next::End);
}

TEST_F(LineReaderTest, refuses_folders_devices_and_what_is_not_there) {
  EXPECT_THROW(LineReader(folder_.path(), 10), Error);
  EXPECT_THROW(LineReader("/dev/zero", 10), Error);
  EXPECT_THROW(LineReader(path(), 10), Error);
}

}  // namespace
}  // namespace hone
