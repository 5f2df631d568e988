// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/file/file_io.h"
#include "hone/core/format/quant_format.h"
#include "hone/core/index.h"

namespace hone {

enum class GgufValueType : std::uint32_t {
  U8 = 0,
  I8,
  U16,
  I16,
  U32,
  I32,
  F32,
  Bool,
  String,
  Array,
  U64,
  I64,
  F64,
};

// A value as stored in the file, known to be complete. GgufFile's getters decode it.
struct GgufValue {
  std::string_view key;
  GgufValueType type = GgufValueType::U8;  // type of the elements if it is an array
  bool is_array = false;
  Index count = 1;
  std::span<const std::byte> bytes;  // the elements; each string follows its u64 length
};

struct GgufTensor {
  std::string_view name;
  std::uint32_t type = 0;  // as stored; see gguf_type_info()
  int rank = 0;
  std::array<Index, 4> dims{1, 1, 1, 1};  // dims[0] is contiguous
  std::span<const std::byte> bytes;
};

// A parsed GGUF file: views into the bytes it was parsed from. Getters return nothing for an absent
// key. A value of another kind throws Error{CorruptFile} that names the key. One thread at a time
// may use it.
class GgufFile {
 public:
  std::uint32_t version() const { return version_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const std::vector<GgufValue>& values() const { return values_; }
  const GgufValue* find(std::string_view key) const;  // null if absent
  // Returns true if find() or a getter has returned the value; values never read are unknown keys.
  bool was_read(const GgufValue& value) const;

  std::optional<Index> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;  // f32, f64 or an integer
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> string(std::string_view key) const;
  std::optional<std::vector<std::string_view>> strings(std::string_view key) const;
  std::optional<std::vector<float>> floats(std::string_view key) const;
  std::optional<std::vector<Index>> integers(std::string_view key) const;

 private:
  friend GgufFile parse_gguf(std::span<const std::byte> file, std::string_view where);
  const GgufValue* find_of(std::string_view key, bool is_array, std::string_view expected) const;
  [[noreturn]] void refuse(std::string_view key, std::string_view expected) const;

  std::string where_;
  std::uint32_t version_ = 0;
  std::vector<GgufValue> values_;       // in file order
  std::vector<std::uint32_t> by_key_;   // values_ sorted by key
  mutable std::vector<bool> was_read_;  // for each of values_
  std::vector<GgufTensor> tensors_;
};

// Reads versions 2 and 3. Checks names, types, every count against the remaining bytes, and that
// the tensors tile the data in order with nothing but alignment between them. Does not touch tensor
// data. `where` names the file in errors: Error{CorruptFile}, or Error{Unsupported} for other
// versions, byte orders and tensor types.
GgufFile parse_gguf(std::span<const std::byte> file, std::string_view where);

// Collects keys and tensor descriptions, then streams the tensors' data in the same order, padded
// to 32 bytes.
class GgufWriter {
 public:
  explicit GgufWriter(const std::filesystem::path& path) : file_(path), path_(path.string()) {}

  // Stored as u32; throws Error{InvalidArgument} if out of range.
  void set_integer(std::string_view key, Index value);
  void set_number(std::string_view key, double value);  // f32
  void set_boolean(std::string_view key, bool value);
  void set_string(std::string_view key, std::string_view value);
  void set_strings(std::string_view key, std::span<const std::string> values);
  void set_numbers(std::string_view key, std::span<const float> values);          // f32
  void set_integers(std::string_view key, std::span<const std::int32_t> values);  // i32
  void set_value(const GgufValue& value);  // copies its bytes unchanged
  bool has(std::string_view key) const { return keys_.contains(key); }

  // dims[0] is contiguous. All tensors must be added before the first write().
  void add_tensor(std::string_view name, GgufType type, std::span<const Index> dims);

  // Writes data of the tensors in the order of add_tensor(). A piece may not span two tensors.
  void write(std::span<const std::byte> data);
  // Throws Error{InvalidArgument} if data is missing.
  void commit();
  Index bytes_written() const { return file_.bytes_written(); }

 private:
  void put_key(std::string_view key, GgufValueType type);
  void put_array(std::string_view key, GgufValueType type, std::size_t count);
  void write_header();
  void close_finished_tensors();
  void pad();

  AtomicFile file_;
  std::string path_, values_, descriptions_;
  std::set<std::string, std::less<>> keys_;
  std::uint64_t n_values_ = 0;
  std::vector<Index> sizes_;
  Index data_bytes_ = 0;
  std::size_t current_ = 0;  // the tensor being written
  Index left_ = 0;           // bytes of this tensor that are not yet written
  bool header_written_ = false;
};

}  // namespace hone
