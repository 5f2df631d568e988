// SPDX-License-Identifier: Apache-2.0
#include "hone/core/format/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "hone/core/check.h"
#include "hone/core/names.h"

namespace hone {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr Index kMaxValues = 65'536;
constexpr Index kMaxTensors = 1'000'000;
constexpr std::size_t kMaxTensorName = 64;  // including ggml's terminating zero
constexpr std::uint32_t kMaxAlignment = 65'536;
constexpr Index kDefaultAlignment = 32;
constexpr Index kMinValueBytes = 8 + 1 + 4 + 1;           // key length, key, type, value
constexpr Index kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name, rank, one dimension, type, offset

// Size of a scalar; 0 for strings and arrays.
Index bytes_of(GgufValueType type) {
  switch (type) {
    case GgufValueType::U8:
    case GgufValueType::I8:
    case GgufValueType::Bool:
      return 1;
    case GgufValueType::U16:
    case GgufValueType::I16:
      return 2;
    case GgufValueType::U32:
    case GgufValueType::I32:
    case GgufValueType::F32:
      return 4;
    case GgufValueType::U64:
    case GgufValueType::I64:
    case GgufValueType::F64:
      return 8;
    case GgufValueType::String:
    case GgufValueType::Array:
      break;
  }
  return 0;
}

// Reads the header and checks every read against the remaining bytes.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, std::string_view where) : bytes_(bytes), where_(where) {}

  Index position() const { return position_; }
  Index remaining() const { return static_cast<Index>(bytes_.size()) - position_; }

  std::span<const std::byte> take(Index count, std::string_view what) {
    if (count < 0 || count > remaining())
      fail_corrupt(where_, concat(count, " bytes for ", what), concat(remaining()));
    const auto part =
        bytes_.subspan(static_cast<std::size_t>(position_), static_cast<std::size_t>(count));
    position_ += count;
    return part;
  }
  template <class T>
  T read(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    return value;
  }
  Index read_count(std::string_view what) {
    return checked_index(read<std::uint64_t>(what), where_);
  }
  std::string_view read_string(std::string_view what) {
    const auto part = take(read_count(what), what);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

 private:
  std::span<const std::byte> bytes_;
  std::string_view where_;
  Index position_ = 0;
};

GgufValueType read_value_type(Cursor& cursor, std::string_view key, std::string_view where) {
  const auto type = cursor.read<std::uint32_t>("a value type");
  if (type > static_cast<std::uint32_t>(GgufValueType::F64))
    fail_corrupt(where, concat("a value type of 0 to 12 for ", quote_name(key)), concat(type));
  return static_cast<GgufValueType>(type);
}

GgufValue read_value(Cursor& cursor, std::span<const std::byte> file, std::string_view where) {
  GgufValue value;
  value.key = cursor.read_string("a key");
  if (value.key.empty()) fail_corrupt(where, "A key has an empty name.");
  value.type = read_value_type(cursor, value.key, where);
  if (value.type == GgufValueType::Array) {
    value.is_array = true;
    value.type = read_value_type(cursor, value.key, where);
    if (value.type == GgufValueType::Array)
      fail_corrupt(where, concat(quote_name(value.key), " is an array of arrays."));
    value.count = cursor.read_count("an array length");
  }
  const Index begin = cursor.position();
  if (value.type == GgufValueType::String) {
    if (value.count > cursor.remaining() / 8)
      fail_corrupt(
          where, concat("at most ", cursor.remaining() / 8, " strings in ", quote_name(value.key)),
          concat(value.count));
    for (Index i = 0; i < value.count; ++i) cursor.read_string("a string");
  } else {
    const Index bytes = checked_mul(value.count, bytes_of(value.type), where);
    const auto part = cursor.take(bytes, quote_name(value.key));
    if (value.type == GgufValueType::Bool &&
        std::any_of(part.begin(), part.end(), [](std::byte b) { return b > std::byte{1}; }))
      fail_corrupt(where, concat(quote_name(value.key), " has a boolean that is neither 0 nor 1."));
  }
  value.bytes = file.subspan(static_cast<std::size_t>(begin),
                             static_cast<std::size_t>(cursor.position() - begin));
  return value;
}

// Reads one tensor description and computes the size of its data. Returns the stored offset.
std::uint64_t read_tensor(Cursor& cursor, std::string_view where, GgufTensor& tensor,
                          Index& bytes) {
  tensor.name = cursor.read_string("a tensor name");
  if (tensor.name.empty() || tensor.name.size() >= kMaxTensorName)
    fail_corrupt(where, "tensor names of 1 to 63 bytes", concat(tensor.name.size(), " bytes"));
  const auto rank = cursor.read<std::uint32_t>("a rank");
  if (rank > 4)
    fail_corrupt(where, concat("a rank of at most 4 for ", quote_name(tensor.name)), concat(rank));
  tensor.rank = static_cast<int>(rank);
  for (std::size_t i = 0; i < rank; ++i) {
    tensor.dims[i] = cursor.read_count("a dimension");
    if (tensor.dims[i] < 1)
      fail_corrupt(where, concat("dimensions of at least 1 for ", quote_name(tensor.name)), "0");
  }
  tensor.type = cursor.read<std::uint32_t>("a tensor type");
  const GgufTypeInfo& info =
      gguf_type_info(tensor.type, concat(where, ": ", quote_name(tensor.name)));
  if (tensor.dims[0] % info.block != 0)
    fail_corrupt(where,
                 concat("rows that are a multiple of ", info.block, " long for ", info.name,
                        " tensor ", quote_name(tensor.name)),
                 concat(tensor.dims[0]));
  bytes = checked_mul(tensor.dims[0] / info.block, info.bytes, where);
  for (std::size_t i = 1; i < rank; ++i) bytes = checked_mul(bytes, tensor.dims[i], where);
  return cursor.read<std::uint64_t>("a tensor offset");
}

// Reads `count` descriptions, then assigns each tensor its data.
void read_tensors(Cursor& cursor, std::span<const std::byte> file, Index count, Index alignment,
                  std::string_view where, std::vector<GgufTensor>& tensors) {
  std::vector<Index> sizes;
  sizes.reserve(static_cast<std::size_t>(count));
  tensors.reserve(static_cast<std::size_t>(count));
  // Relative to the start of the data.
  Index end = 0;     // of the tensors so far
  Index offset = 0;  // of the next one
  for (Index n = 0; n < count; ++n) {
    GgufTensor tensor;
    Index bytes = 0;
    const std::uint64_t stored = read_tensor(cursor, where, tensor, bytes);
    if (stored != static_cast<std::uint64_t>(offset))
      fail_corrupt(where, concat("offset ", offset, " for ", quote_name(tensor.name)),
                   concat(stored));
    sizes.push_back(bytes);
    tensors.push_back(tensor);
    end = checked_add(offset, bytes, where);
    checked_add(end, alignment, where);  // or rounding up would overflow
    offset = round_up(end, alignment);
  }
  Index position = round_up(cursor.position(), alignment);
  const Index needed = checked_add(position, end, where);
  if (count > 0 && needed > static_cast<Index>(file.size()))
    fail_corrupt(where, concat("a file of ", needed, " bytes, which its tensors need"),
                 concat(file.size(), " bytes"));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].bytes =
        file.subspan(static_cast<std::size_t>(position), static_cast<std::size_t>(sizes[i]));
    position = round_up(position + sizes[i], alignment);
  }
}

template <class T>
T element(const GgufValue& value, Index i) {
  T out;
  std::memcpy(&out, value.bytes.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
  return out;
}

// An integer element of any width. Empty for other kinds and for u64 above 2^63-1.
std::optional<Index> integer_element(const GgufValue& value, Index i) {
  switch (value.type) {
    case GgufValueType::U8:
      return element<std::uint8_t>(value, i);
    case GgufValueType::I8:
      return element<std::int8_t>(value, i);
    case GgufValueType::U16:
      return element<std::uint16_t>(value, i);
    case GgufValueType::I16:
      return element<std::int16_t>(value, i);
    case GgufValueType::U32:
      return element<std::uint32_t>(value, i);
    case GgufValueType::I32:
      return element<std::int32_t>(value, i);
    case GgufValueType::I64:
      return element<std::int64_t>(value, i);
    case GgufValueType::U64: {
      const auto wide = element<std::uint64_t>(value, i);
      if (wide >> 63 == 0) return static_cast<Index>(wide);
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

std::uint32_t read_version(Cursor& cursor, std::string_view where) {
  const auto magic = cursor.take(4, "the magic");
  if (std::memcmp(magic.data(), "GGUF", 4) != 0)
    fail_corrupt(where, "'GGUF' at byte 0",
                 quote_name({reinterpret_cast<const char*>(magic.data()), 4}));
  const auto version = cursor.read<std::uint32_t>("the version");
  if ((version & 0xffffu) == 0)
    fail_unsupported(where, "a little-endian GGUF file", concat("version word ", version));
  if (version != 2 && version != 3) fail_unsupported(where, "GGUF version 2 or 3", concat(version));
  return version;
}

// Counts of keys or tensors that take at least `least_bytes` each.
void check_count(Index count, Index most, Index least_bytes, const Cursor& cursor,
                 std::string_view what, std::string_view where) {
  if (count > most) fail_corrupt(where, concat("at most ", most, " ", what), concat(count));
  if (count <= cursor.remaining() / least_bytes) return;
  fail_corrupt(where, concat("a file that can hold its ", count, " ", what),
               concat(cursor.position() + cursor.remaining(), " bytes"));
}

void check_unique(Index count, std::string_view what, std::string_view where,
                  FunctionRef<std::string_view(Index)> name) {
  const Index twice = find_duplicate(count, name);
  if (twice >= 0)
    fail_corrupt(where, concat("The ", what, " ", quote_name(name(twice)), " occurs twice."));
}

// Reads general.alignment; `value` is null if the key is absent.
Index read_alignment(const GgufValue* value, std::string_view where) {
  if (value == nullptr) return kDefaultAlignment;
  if (value->is_array || value->type != GgufValueType::U32)
    fail_corrupt(where, "general.alignment is not a u32.");
  const auto alignment = element<std::uint32_t>(*value, 0);
  if (!std::has_single_bit(alignment) || alignment > kMaxAlignment)
    fail_corrupt(where, "an alignment that is a power of two up to 65536", concat(alignment));
  return alignment;
}

}  // namespace

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto at = std::lower_bound(
      by_key_.begin(), by_key_.end(), key,
      [&](std::uint32_t index, std::string_view wanted) { return values_[index].key < wanted; });
  if (at == by_key_.end() || values_[*at].key != key) return nullptr;
  was_read_[*at] = true;
  return &values_[*at];
}

bool GgufFile::was_read(const GgufValue& value) const {
  return was_read_[static_cast<std::size_t>(&value - values_.data())];
}

void GgufFile::refuse(std::string_view key, std::string_view expected) const {
  fail_corrupt(where_, concat(key, " is not ", expected, "."));
}

const GgufValue* GgufFile::find_of(std::string_view key, bool is_array,
                                   std::string_view expected) const {
  const GgufValue* value = find(key);
  if (value != nullptr && value->is_array != is_array) refuse(key, expected);
  return value;
}

std::optional<Index> GgufFile::integer(std::string_view key) const {
  const GgufValue* value = find_of(key, false, "a whole number");
  if (value == nullptr) return std::nullopt;
  const std::optional<Index> number = integer_element(*value, 0);
  if (!number) refuse(key, "a whole number");
  return number;
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const GgufValue* value = find_of(key, false, "a number");
  if (value == nullptr) return std::nullopt;
  if (value->type == GgufValueType::F32) return element<float>(*value, 0);
  if (value->type == GgufValueType::F64) return element<double>(*value, 0);
  return static_cast<double>(*integer(key));
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufValue* value = find_of(key, false, "a boolean");
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufValueType::Bool) refuse(key, "a boolean");
  return value->bytes[0] != std::byte{0};
}

std::optional<std::string_view> GgufFile::string(std::string_view key) const {
  const GgufValue* value = find_of(key, false, "a string");
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufValueType::String) refuse(key, "a string");
  return std::string_view(reinterpret_cast<const char*>(value->bytes.data()) + 8,
                          value->bytes.size() - 8);
}

std::optional<std::vector<std::string_view>> GgufFile::strings(std::string_view key) const {
  const GgufValue* value = find_of(key, true, "an array of strings");
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufValueType::String) refuse(key, "an array of strings");
  std::vector<std::string_view> out;
  out.reserve(static_cast<std::size_t>(value->count));
  Cursor cursor(value->bytes, where_);
  for (Index i = 0; i < value->count; ++i) out.push_back(cursor.read_string("a string"));
  return out;
}

std::optional<std::vector<float>> GgufFile::floats(std::string_view key) const {
  const GgufValue* value = find_of(key, true, "an array of f32");
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufValueType::F32) refuse(key, "an array of f32");
  std::vector<float> out(static_cast<std::size_t>(value->count));
  if (!out.empty()) std::memcpy(out.data(), value->bytes.data(), value->bytes.size());
  return out;
}

std::optional<std::vector<Index>> GgufFile::integers(std::string_view key) const {
  const GgufValue* value = find_of(key, true, "an array of whole numbers");
  if (value == nullptr) return std::nullopt;
  std::vector<Index> out;
  // Each element takes eight bytes here, so narrower ones would multiply a file's size in memory;
  // callers read arrays of ids, which are stored as i32.
  if (bytes_of(value->type) < 4) refuse(key, "an array of 32-bit or 64-bit whole numbers");
  out.reserve(static_cast<std::size_t>(value->count));
  for (Index i = 0; i < value->count; ++i) {
    const std::optional<Index> number = integer_element(*value, i);
    if (!number) refuse(key, "an array of whole numbers");
    out.push_back(*number);
  }
  return out;
}

GgufFile parse_gguf(std::span<const std::byte> file, std::string_view where) {
  Cursor cursor(file, where);
  GgufFile out;
  out.where_ = where;
  out.version_ = read_version(cursor, where);
  const Index n_tensors = cursor.read_count("the tensor count");
  const Index n_values = cursor.read_count("the key count");
  check_count(n_values, kMaxValues, kMinValueBytes, cursor, "keys", where);
  check_count(n_tensors, kMaxTensors, kMinTensorBytes, cursor, "tensors", where);

  out.values_.reserve(static_cast<std::size_t>(n_values));
  for (Index i = 0; i < n_values; ++i) out.values_.push_back(read_value(cursor, file, where));
  check_unique(n_values, "key", where,
               [&](Index i) { return out.values_[static_cast<std::size_t>(i)].key; });
  out.was_read_.resize(out.values_.size());
  out.by_key_.resize(out.values_.size());
  std::iota(out.by_key_.begin(), out.by_key_.end(), 0u);
  std::sort(out.by_key_.begin(), out.by_key_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return out.values_[a].key < out.values_[b].key;
  });

  const Index alignment = read_alignment(out.find("general.alignment"), where);
  read_tensors(cursor, file, n_tensors, alignment, where, out.tensors_);
  check_unique(n_tensors, "tensor", where,
               [&](Index i) { return out.tensors_[static_cast<std::size_t>(i)].name; });
  return out;
}

}  // namespace hone
