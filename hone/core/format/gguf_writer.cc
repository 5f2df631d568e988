// SPDX-License-Identifier: Apache-2.0
#include "hone/core/check.h"
#include "hone/core/format/gguf.h"

namespace hone {
namespace {

constexpr std::size_t kMaxNameBytes = 64;  // including ggml's terminating zero
constexpr Index kAlignment = 32;

template <class T>
void append_raw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_text(std::string& out, std::string_view text) {
  append_raw(out, static_cast<std::uint64_t>(text.size()));
  out.append(text);
}

}  // namespace

void GgufWriter::put_key(std::string_view key, GgufValueType type) {
  keys_.emplace(key);
  append_text(values_, key);
  append_raw(values_, static_cast<std::uint32_t>(type));
  ++n_values_;
}

void GgufWriter::put_array(std::string_view key, GgufValueType type, std::size_t count) {
  put_key(key, GgufValueType::Array);
  append_raw(values_, static_cast<std::uint32_t>(type));
  append_raw(values_, static_cast<std::uint64_t>(count));
}

void GgufWriter::set_integer(std::string_view key, Index value) {
  HONE_CHECK(value >= 0 && value <= Index{0xffffffff}, path_, concat("a u32 for ", key), value);
  put_key(key, GgufValueType::U32);
  append_raw(values_, static_cast<std::uint32_t>(value));
}

void GgufWriter::set_number(std::string_view key, double value) {
  put_key(key, GgufValueType::F32);
  append_raw(values_, static_cast<float>(value));
}

void GgufWriter::set_boolean(std::string_view key, bool value) {
  put_key(key, GgufValueType::Bool);
  append_raw(values_, static_cast<std::uint8_t>(value));
}

void GgufWriter::set_string(std::string_view key, std::string_view value) {
  put_key(key, GgufValueType::String);
  append_text(values_, value);
}

void GgufWriter::set_strings(std::string_view key, std::span<const std::string> values) {
  put_array(key, GgufValueType::String, values.size());
  for (const std::string& value : values) append_text(values_, value);
}

void GgufWriter::set_numbers(std::string_view key, std::span<const float> values) {
  put_array(key, GgufValueType::F32, values.size());
  values_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

void GgufWriter::set_integers(std::string_view key, std::span<const std::int32_t> values) {
  put_array(key, GgufValueType::I32, values.size());
  values_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

void GgufWriter::set_value(const GgufValue& value) {
  if (value.is_array) {
    put_array(value.key, value.type, static_cast<std::size_t>(value.count));
  } else {
    put_key(value.key, value.type);
  }
  values_.append(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
}

void GgufWriter::add_tensor(std::string_view name, GgufType type, std::span<const Index> dims) {
  HONE_REQUIRE(!header_written_, path_,
               concat("Tensor ", name, " is added after the first write()."));
  HONE_CHECK(!name.empty() && name.size() < kMaxNameBytes, path_, "a tensor name of 1 to 63 bytes",
             name);
  HONE_CHECK(!dims.empty() && dims.size() <= 4, path_, "1 to 4 dimensions", dims.size());
  const GgufTypeInfo& info = gguf_type_info(static_cast<std::uint32_t>(type), name);
  HONE_CHECK(dims[0] % info.block == 0, path_,
             concat("rows of ", name, " that are a multiple of ", info.block, " long"), dims[0]);
  Index bytes = dims[0] / info.block * info.bytes;
  append_text(descriptions_, name);
  append_raw(descriptions_, static_cast<std::uint32_t>(dims.size()));
  for (std::size_t i = 0; i < dims.size(); ++i) {
    append_raw(descriptions_, static_cast<std::uint64_t>(dims[i]));
    if (i > 0) bytes *= dims[i];
  }
  append_raw(descriptions_, static_cast<std::uint32_t>(type));
  append_raw(descriptions_, static_cast<std::uint64_t>(data_bytes_));
  sizes_.push_back(bytes);
  data_bytes_ = round_up(data_bytes_ + bytes, kAlignment);
}

void GgufWriter::pad() {
  const Index gap = round_up(file_.bytes_written(), kAlignment) - file_.bytes_written();
  file_.write(std::string(static_cast<std::size_t>(gap), '\0'));
}

void GgufWriter::write_header() {
  header_written_ = true;
  std::string head = "GGUF";
  append_raw(head, std::uint32_t{3});
  append_raw(head, static_cast<std::uint64_t>(sizes_.size()));
  append_raw(head, n_values_);
  file_.write(head);
  file_.write(values_);
  file_.write(descriptions_);
  pad();
  left_ = sizes_.empty() ? 0 : sizes_.front();
  close_finished_tensors();
}

// Skips tensors that are complete and pads each of them, the last one too, as ggml does.
void GgufWriter::close_finished_tensors() {
  while (current_ < sizes_.size() && left_ == 0) {
    pad();
    if (++current_ < sizes_.size()) left_ = sizes_[current_];
  }
}

void GgufWriter::write(std::span<const std::byte> data) {
  if (!header_written_) write_header();
  HONE_CHECK(static_cast<Index>(data.size()) <= left_, path_,
             concat("at most ", left_, " more bytes of the tensor"), data.size());
  file_.write(data);
  left_ -= static_cast<Index>(data.size());
  close_finished_tensors();
}

void GgufWriter::commit() {
  if (!header_written_) write_header();
  HONE_CHECK(current_ == sizes_.size(), path_, concat("data for ", sizes_.size(), " tensors"),
             current_);
  file_.commit();
}

}  // namespace hone
