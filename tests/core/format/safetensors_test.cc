// SPDX-License-Identifier: Apache-2.0
#include "hone/core/format/safetensors.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "hone/core/check.h"
#include "hone/core/file/mmap_file.h"
#include "tests/support/test_data.h"

namespace hone {
namespace {

// A file with this header text, whatever it says, and this many bytes of data.
std::vector<std::byte> make_file(std::string_view header, std::size_t data_bytes) {
  std::vector<std::byte> file(8 + header.size() + data_bytes, std::byte{7});
  const std::uint64_t length = header.size();
  std::memcpy(file.data(), &length, sizeof length);
  std::memcpy(file.data() + 8, header.data(), header.size());
  return file;
}

// The error of parsing; its message must be one line that names the file.
ErrorCategory category_of(const std::vector<std::byte>& file) {
  try {
    parse_safetensors(file, "x.safetensors");
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("x.safetensors"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 400u) << message;
    return error.category();
  }
  ADD_FAILURE() << "accepted";
  return ErrorCategory::Internal;
}

std::string entry(std::string_view name, std::string_view dtype, std::string_view shape,
                  Index begin, Index end) {
  return concat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":", shape,
                ",\"data_offsets\":[", begin, ",", end, "]}");
}

TEST(Safetensors, reads_what_the_writer_wrote) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  const std::vector<float> matrix{1, 2, 3, 4, 5, std::numeric_limits<float>::quiet_NaN()};
  const std::vector<std::uint8_t> bytes{9, 8, 7};
  const std::vector<SafetensorsWriter::Entry> plan{{"m", Dtype::Float32, {2, 3}},
                                                   {"empty", Dtype::Float16, {0, 5}},
                                                   {"b \"quoted\"", Dtype::UInt8, {3}},
                                                   {"scalar", Dtype::Int8, {}}};
  SafetensorsWriter writer(path, plan, {{"format", "pt"}, {"k", "v\n"}});
  writer.write(std::as_bytes(std::span(matrix)).first(5));  // pieces need not end with a tensor
  writer.write(std::as_bytes(std::span(matrix)).subspan(5));
  writer.write(std::as_bytes(std::span(bytes)));
  writer.write(std::as_bytes(std::span(bytes)).first(1));
  writer.commit();

  const MmapFile file(path);
  const SafetensorsFile read = parse_safetensors(file.bytes(), "a");
  ASSERT_EQ(read.tensors.size(), 4u);
  EXPECT_EQ(read.tensors[0].name, "m");
  EXPECT_EQ(read.tensors[0].shape, (Shape{2, 3}));
  EXPECT_EQ(std::memcmp(read.tensors[0].bytes.data(), matrix.data(), 24), 0);
  EXPECT_EQ((read.tensors[0].bytes.data() - file.bytes().data()) % 64, 0);
  EXPECT_EQ(read.tensors[1].bytes.size(), 0u);
  EXPECT_EQ(read.tensors[2].name, "b \"quoted\"");
  EXPECT_EQ(read.tensors[3].shape.rank(), 0);
  EXPECT_EQ(read.tensors[3].bytes[0], std::byte{9});
  ASSERT_NE(read.find_metadata("k"), nullptr);
  EXPECT_EQ(*read.find_metadata("k"), "v\n");
  EXPECT_EQ(read.find_metadata("absent"), nullptr);
}

TEST(Safetensors, orders_tensors_by_offset_and_allows_trailing_spaces) {
  const auto file = make_file(
      "{" + entry("b", "U8", "[2]", 1, 3) + "," + entry("a", "U8", "[1]", 0, 1) + "}   ", 3);
  const SafetensorsFile read = parse_safetensors(file, "x");
  ASSERT_EQ(read.tensors.size(), 2u);
  EXPECT_EQ(read.tensors[0].name, "a");
  EXPECT_EQ(read.tensors[1].name, "b");
}

TEST(Safetensors, reads_a_file_without_tensors) {
  EXPECT_TRUE(parse_safetensors(make_file("{}", 0), "x").tensors.empty());
}

TEST(Safetensors, refuses_lies_about_sizes) {
  const std::string a = entry("a", "F32", "[2]", 0, 8);
  EXPECT_EQ(category_of(std::vector<std::byte>()), ErrorCategory::CorruptFile);
  std::vector<std::byte> huge = make_file("{" + a + "}", 8);
  huge[7] = std::byte{0x80};  // header of 2^63 bytes
  EXPECT_EQ(category_of(huge), ErrorCategory::CorruptFile);
  EXPECT_EQ(category_of(make_file("{" + a + "}", 9)), ErrorCategory::CorruptFile);  // one byte left
  EXPECT_EQ(category_of(make_file("{" + a + "}", 7)), ErrorCategory::CorruptFile);  // one too few
  const std::vector<std::string> lies{
      entry("a", "F32", "[2]", 0, 7),                                         // size != shape
      entry("a", "F32", "[2]", 8, 0),                                         // backwards
      entry("a", "F32", "[2]", 8, 16),                                        // beyond the end
      entry("a", "F32", "[4294967296,4294967296,4294967296]", 0, 8),          // overflow
      entry("a", "F32", "[1]", 0, 4) + "," + entry("b", "U8", "[3]", 5, 8),   // hole
      entry("a", "F32", "[1]", 0, 4) + "," + entry("b", "U8", "[5]", 3, 8),   // overlap
      entry("a", "F32", "[2]", 0, 8) + "," + entry("b", "F32", "[2]", 0, 8),  // shared bytes
      entry("b", "F32", "[1]", 4, 8),                                         // starts late
      entry("a", "U8", "[1,1,1,1,1,1,1,1,8]", 0, 8),                          // rank 9
      entry("a", "F32", "[18446744073709551615]", 0, 8),
      entry("a", "F32", "[-2]", 0, 8),
      entry("a", "F32", "[2.0]", 0, 8),
      entry("a", "F32", "[1e999]", 0, 8)};
  for (const std::string& lie : lies)
    EXPECT_EQ(category_of(make_file("{" + lie + "}", 8)), ErrorCategory::CorruptFile) << lie;
}

TEST(Safetensors, refuses_malformed_headers) {
  const std::string a = entry("a", "F32", "[2]", 0, 8);
  const std::vector<std::string> lies{
      "",
      " {" + a + "}",
      "[" + a + "]",
      "{" + a,
      "{" + a + "} {",
      "{" + a + "," + entry("a", "F32", "[0]", 8, 8) + "}",  // same name twice
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}",
      "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[[2]],\"data_offsets\":[0,8]}}",
      "{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":null,\"data_offsets\":[0,8]}}",
      "{\"a\":[]}",
      "{\"a\":1}",
      "{\"__metadata__\":{\"k\":1}," + a + "}",
      "{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}," + a + "}",
      "{\"__metadata__\":{\"k\":{}}," + a + "}",
      "{\"__metadata__\":{},\"__metadata__\":{}," + a + "}",
      "{\"\xff\xfe\":" + a.substr(4) + "}",  // not UTF-8
      "{" + entry(std::string(1025, 'n'), "F32", "[2]", 0, 8) + "}"};
  for (const std::string& lie : lies)
    EXPECT_EQ(category_of(make_file(lie, 8)), ErrorCategory::CorruptFile) << lie;
}

TEST(Safetensors, names_tensor_and_dtype_it_does_not_read) {
  const auto file = make_file("{" + entry("odd", "C64", "[1]", 0, 8) + "}", 8);
  EXPECT_EQ(category_of(file), ErrorCategory::Unsupported);
  try {
    parse_safetensors(file, "x");
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("odd"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("C64"), std::string::npos);
  }
}

std::vector<std::byte> many_keys(Index count) {
  std::string header = "{";
  for (Index i = 0; i < count; ++i)
    header += (i > 0 ? "," : "") + entry(concat("t", i), "U8", "[0]", 0, 0);
  return make_file(header + "}", 0);
}

double seconds_to_parse_safetensors(const std::vector<std::byte>& file) {
  const auto begin = std::chrono::steady_clock::now();
  parse_safetensors(file, "x");
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(Safetensors, reads_a_million_keys_in_linear_time) {
  const auto small = many_keys(100'000), large = many_keys(1'000'000);
  const double ratio = seconds_to_parse_safetensors(large) / seconds_to_parse_safetensors(small);
  EXPECT_LT(ratio, 40);  // ten times the keys: 10 when linear, 100 when quadratic
  EXPECT_EQ(category_of(many_keys(1'000'001)), ErrorCategory::CorruptFile);
}

TEST(SafetensorsWriter, leaves_no_file_without_commit_or_with_missing_data) {
  const test::TemporaryFolder folder;
  const std::vector<SafetensorsWriter::Entry> plan{{"m", Dtype::Float32, {2}}};
  {
    SafetensorsWriter writer(folder.path() / "a", plan);
    EXPECT_THROW(writer.commit(), Error);
  }
  {
    SafetensorsWriter writer(folder.path() / "b", plan);
    writer.write(std::vector<std::byte>(8));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SafetensorsWriter, refuses_names_that_the_format_cannot_hold) {
  const test::TemporaryFolder folder;
  const std::vector<SafetensorsWriter::Entry> twice{{"m", Dtype::Float32, {2}},
                                                    {"m", Dtype::Float32, {2}}};
  EXPECT_THROW(SafetensorsWriter(folder.path() / "a", twice), Error);
  const std::vector<SafetensorsWriter::Entry> nameless{{"", Dtype::Float32, {2}}};
  EXPECT_THROW(SafetensorsWriter(folder.path() / "a", nameless), Error);
}

}  // namespace
}  // namespace hone
