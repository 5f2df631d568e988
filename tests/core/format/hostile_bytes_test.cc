// SPDX-License-Identifier: Apache-2.0
// Small valid containers, changed one byte at a time and cut at every length: each reads as
// something consistent or ends in one sentence that names the file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

#include "hone/core/check.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/format/gguf.h"
#include "hone/core/format/safetensors.h"
#include "tests/support/test_data.h"

namespace hone {
namespace {

using Bytes = std::vector<std::byte>;

Bytes read_bytes(const std::filesystem::path& path) {
  const MmapFile file(path);
  return {file.bytes().begin(), file.bytes().end()};
}

Bytes valid_safetensors() {
  const test::TemporaryFolder folder;
  const std::vector<SafetensorsWriter::Entry> plan{
      {"a", Dtype::Float32, {2, 3}}, {"b", Dtype::BFloat16, {5}}, {"c", Dtype::Int8, {}}};
  SafetensorsWriter writer(folder.path() / "x", plan, {{"format", "pt"}});
  writer.write(Bytes(24 + 10 + 1, std::byte{1}));
  writer.commit();
  return read_bytes(folder.path() / "x");
}

Bytes valid_gguf() {
  const test::TemporaryFolder folder;
  const std::vector<Index> matrix{32, 2}, vector{3};
  GgufWriter writer(folder.path() / "x");
  writer.set_integer("n", 7);
  writer.set_boolean("b", true);
  writer.set_strings("words", std::vector<std::string>{"one", "two"});
  writer.set_numbers("f", std::vector<float>{1, 2});
  writer.add_tensor("q", GgufType::Q8_0, matrix);
  writer.add_tensor("v", GgufType::F32, vector);
  writer.write(Bytes(68, std::byte{1}));
  writer.write(Bytes(12, std::byte{1}));
  writer.commit();
  return read_bytes(folder.path() / "x");
}

// The error of `call`, nothing when there is none; anything but hone::Error fails the test.
std::optional<ErrorCategory> checked_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("file.x"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 500u) << message;
    EXPECT_TRUE(error.category() == ErrorCategory::CorruptFile ||
                error.category() == ErrorCategory::Unsupported)
        << message;
    return error.category();
  }
  return std::nullopt;
}

bool lies_inside(std::span<const std::byte> part, const Bytes& file) {
  return part.empty() ||
         (part.data() >= file.data() && part.data() + part.size() <= file.data() + file.size());
}

std::optional<ErrorCategory> read_safetensors(const Bytes& file) {
  return checked_error([&] {
    const SafetensorsFile read = parse_safetensors(file, "file.x");
    std::size_t total = 0;
    for (const auto& tensor : read.tensors) {
      ASSERT_TRUE(lies_inside(tensor.bytes, file));
      ASSERT_EQ(static_cast<Index>(tensor.bytes.size()),
                tensor.shape.elements() * bytes_of(tensor.dtype));
      total += tensor.bytes.size();
    }
    ASSERT_LE(total + 8, file.size());
  });
}

// Reads every value in every way, so that accessors meet the damage too.
std::optional<ErrorCategory> read_gguf(const Bytes& file) {
  return checked_error([&] {
    const GgufFile read = parse_gguf(file, "file.x");
    for (const GgufTensor& tensor : read.tensors()) {
      ASSERT_TRUE(lies_inside(tensor.bytes, file));
      Index elements = 1;
      for (int i = 0; i < tensor.rank; ++i) elements *= tensor.dims[static_cast<std::size_t>(i)];
      const GgufTypeInfo& info = gguf_type_info(tensor.type, tensor.name);
      ASSERT_EQ(static_cast<Index>(tensor.bytes.size()), elements / info.block * info.bytes);
    }
    for (const char* key : {"n", "b", "words", "f"}) {
      checked_error([&] { read.integer(key); });
      checked_error([&] { read.number(key); });
      checked_error([&] { read.boolean(key); });
      checked_error([&] { read.string(key); });
      checked_error([&] { read.strings(key); });
      checked_error([&] { read.floats(key); });
      checked_error([&] { read.integers(key); });
    }
  });
}

struct Format {
  const char* name;
  Bytes (*make)();
  std::optional<ErrorCategory> (*read)(const Bytes&);
};

class HostileBytes : public testing::TestWithParam<Format> {};

TEST_P(HostileBytes, every_change_of_one_byte_is_read_or_refused) {
  const Bytes valid = GetParam().make();
  ASSERT_EQ(GetParam().read(valid), std::nullopt);
  Index refused = 0;
  for (std::size_t at = 0; at < valid.size(); ++at) {
    for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff, +'"', +'{', +'}', +',', +'9', -1, -2}) {
      // -1: one more; -2: the other letter case.
      Bytes changed = valid;
      const auto now = static_cast<int>(valid[at]);
      changed[at] = static_cast<std::byte>(value == -1   ? now + 1
                                           : value == -2 ? now ^ 0x20
                                                         : value);
      refused += GetParam().read(changed).has_value();
      ASSERT_FALSE(HasFailure()) << "byte " << at << " set to " << value;
    }
  }
  EXPECT_GT(refused, static_cast<Index>(valid.size()));  // of twelve changes a byte
}

TEST_P(HostileBytes, every_file_cut_short_is_refused) {
  const Bytes valid = GetParam().make();
  for (std::size_t size = 0; size < valid.size(); ++size) {
    const Bytes cut(valid.begin(), valid.begin() + static_cast<std::ptrdiff_t>(size));
    const auto error = GetParam().read(cut);
    // GGUF pads after the last tensor; a file without that padding is complete.
    if (valid.size() - size < 32 && !error) continue;
    ASSERT_EQ(error, ErrorCategory::CorruptFile) << size << " of " << valid.size() << " bytes";
  }
}

TEST_P(HostileBytes, bytes_taken_out_or_repeated_are_read_or_refused) {
  const Bytes valid = GetParam().make();
  for (std::size_t at = 0; at < valid.size(); ++at) {
    for (const std::size_t count : {1u, 4u, 8u, 33u}) {
      const auto begin = valid.begin() + static_cast<std::ptrdiff_t>(at);
      const auto end = begin + static_cast<std::ptrdiff_t>(std::min(count, valid.size() - at));
      Bytes without(valid.begin(), begin), twice(valid.begin(), end);
      without.insert(without.end(), end, valid.end());
      twice.insert(twice.end(), begin, valid.end());
      GetParam().read(without);
      GetParam().read(twice);
      ASSERT_FALSE(HasFailure()) << count << " bytes at " << at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, HostileBytes,
                         testing::Values(Format{"safetensors", valid_safetensors, read_safetensors},
                                         Format{"gguf", valid_gguf, read_gguf}),
                         [](const auto& format) { return std::string(format.param.name); });

// One edit of the JSON header a row: what is replaced, by what, and the word that the message must
// contain so that the user finds the place.
struct HeaderEdit {
  const char *from, *to, *names;
  ErrorCategory category = ErrorCategory::CorruptFile;
};

TEST(SafetensorsHeader, each_check_names_the_tensor_it_refuses) {
  const Bytes valid = valid_safetensors();
  std::uint64_t length = 0;
  std::memcpy(&length, valid.data(), 8);
  const std::string header(reinterpret_cast<const char*>(valid.data()) + 8, length);
  const std::vector<HeaderEdit> edits{{"\"F32\"", "\"F33\"", "F33", ErrorCategory::Unsupported},
                                      {"\"F32\"", "\"f32\"", "f32", ErrorCategory::Unsupported},
                                      {"\"F32\"", "\"\"", "'a'", ErrorCategory::Unsupported},
                                      {"[2,3]", "[2,4]", "'a'"},
                                      {"[2,3]", "[2,-3]", "'a'"},
                                      {"[2,3]", "[2,3.0]", "'a'"},
                                      {"[2,3]", "[2,\"3\"]", "'a'"},
                                      {"[2,3]", "[2,3,1,1,1,1,1,1,1]", "'a'"},
                                      {"[2,3]", "[[2],3]", "'a'"},
                                      {"[2,3]", "{}", "'a'"},
                                      {"[2,3]", "6", "'a'"},
                                      {"[0,24]", "[0,25]", "'a'"},
                                      {"[0,24]", "[24,0]", "'a'"},
                                      {"[0,24]", "[1,25]", "'a'"},
                                      {"[0,24]", "[0]", "'a'"},
                                      {"[0,24]", "[0,24,24]", "'a'"},
                                      {"[0,24]", "[0,2400]", "'a'"},
                                      {"[0,24]", "[]", "'a'"},
                                      {"\"shape\":[5]", "\"shapes\":[5]", "'b'"},
                                      {"\"shape\":[5]", "\"shape\":[5],\"shape\":[5]", "'b'"},
                                      {"\"shape\":[5]", "\"dtype\":\"F32\",\"shape\":[5]", "'b'"},
                                      {"\"b\":", "\"a\":", "'a'"},
                                      {"\"pt\"", "1", "format"},
                                      {"\"pt\"", "null", "format"},
                                      {"\"pt\"", "[]", "format"}};
  for (const HeaderEdit& edit : edits) {
    std::string text = header;
    const auto at = text.find(edit.from);
    ASSERT_NE(at, std::string::npos) << edit.from;
    text.replace(at, std::strlen(edit.from), edit.to);
    Bytes file(8);
    const std::uint64_t size = text.size();
    std::memcpy(file.data(), &size, 8);
    for (const char c : text) file.push_back(static_cast<std::byte>(c));
    file.insert(file.end(), valid.begin() + static_cast<std::ptrdiff_t>(8 + length), valid.end());
    try {
      parse_safetensors(file, "file.x");
      ADD_FAILURE() << edit.from << " -> " << edit.to << " accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), edit.category) << edit.to << ": " << error.what();
      EXPECT_NE(std::string(error.what()).find(edit.names), std::string::npos)
          << edit.to << ": " << error.what();
    }
  }
}

TEST(GgufValue, a_u64_above_the_signed_range_is_refused_only_when_asked_for) {
  Bytes file = valid_gguf();
  // Key "n" holds a u32 or wider 7: widen the search to its eight bytes.
  const GgufFile before = parse_gguf(file, "file.x");
  const GgufValue* value = before.find("n");
  ASSERT_NE(value, nullptr);
  const auto at = static_cast<std::size_t>(value->bytes.data() - file.data());
  const std::size_t width = value->bytes.size();
  std::fill_n(file.begin() + static_cast<std::ptrdiff_t>(at), width, std::byte{0xff});
  const GgufFile after = parse_gguf(file, "file.x");
  if (width == 8) {
    EXPECT_THROW(after.integer("n"), Error);
  } else {
    EXPECT_EQ(after.integer("n"), 0xffffffff);
  }
  EXPECT_EQ(after.boolean("b"), true);
}

}  // namespace
}  // namespace hone
