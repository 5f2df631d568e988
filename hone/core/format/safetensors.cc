// SPDX-License-Identifier: Apache-2.0
#include "hone/core/format/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "hone/core/check.h"
#include "hone/core/file/json_io.h"
#include "hone/core/names.h"

namespace hone {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr Index kMaxHeader = 100'000'000;
constexpr Index kMaxTensors = 1'000'000;
constexpr std::size_t kMaxName = 1024;
constexpr std::size_t kMaxMetadata = 65'536;
constexpr Index kMinEntryBytes =
    48;  // bytes of the shortest JSON entry with dtype, shape and data_offsets
constexpr Index kDataAlignment = 64;

struct DtypeName {
  Dtype dtype;
  std::string_view name;
};
constexpr std::array<DtypeName, 11> kDtypes{{{Dtype::Float32, "F32"},
                                             {Dtype::Float16, "F16"},
                                             {Dtype::BFloat16, "BF16"},
                                             {Dtype::Float64, "F64"},
                                             {Dtype::Int8, "I8"},
                                             {Dtype::UInt8, "U8"},
                                             {Dtype::Int32, "I32"},
                                             {Dtype::Int64, "I64"},
                                             {Dtype::Bool, "BOOL"},
                                             {Dtype::Float8E4M3, "F8_E4M3"},
                                             {Dtype::Float8E5M2, "F8_E5M2"}}};

// Turns the header's JSON events into tensors without building a document, so that memory stays a
// small multiple of the header. The grammar has four levels, and each event is legal in one place.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  HeaderReader(std::span<const std::byte> data, std::string_view where, SafetensorsFile& out)
      : data_(data), where_(where), out_(out) {}

  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("a boolean"); }
  bool number_integer(number_integer_t) override { return refuse("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return refuse("a number that is not a whole 64-bit one");
  }
  bool binary(binary_t&) override { return refuse("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    const Index number = checked_index(value, where_);
    if (state_ == State::Shape) {
      if (rank_ == Shape::kMaxRank)
        fail_corrupt(where_, concat(quote_name(name_), " has more than 8 dimensions."));
      dims_[static_cast<std::size_t>(rank_++)] = number;
    } else if (state_ == State::Offsets) {
      if (offsets_ == 2)
        fail_corrupt(where_, concat(quote_name(name_), " has more than two data_offsets."));
      (offsets_++ == 0 ? begin_ : end_) = number;
    } else {
      return refuse("a number");
    }
    return true;
  }

  bool string(string_t& value) override {
    if (state_ == State::Metadata) {
      if (out_.metadata.size() == kMaxMetadata)
        fail_corrupt(where_, "There are more than 65536 metadata keys.");
      out_.metadata.emplace_back(std::move(field_), std::move(value));
    } else if (state_ == State::Entry && field_ == "dtype") {
      set_dtype(value);
    } else {
      return refuse("a string");
    }
    return true;
  }

  bool key(string_t& value) override {
    if (state_ == State::Tensors) {
      if (value.size() > kMaxName)
        fail_corrupt(where_, "tensor names of at most 1024 bytes", concat(value.size(), " bytes"));
      name_ = std::move(value);
    } else {
      field_ = std::move(value);
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (state_ == State::Top) {
      state_ = State::Tensors;
    } else if (state_ == State::Tensors && name_ == "__metadata__") {
      if (metadata_seen_) fail_corrupt(where_, "__metadata__ occurs twice.");
      metadata_seen_ = true;
      state_ = State::Metadata;
    } else if (state_ == State::Tensors) {
      state_ = State::Entry;
      seen_ = 0;
    } else {
      return refuse("an object");
    }
    return true;
  }

  bool end_object() override {
    if (state_ == State::Entry) add_tensor();
    state_ = state_ == State::Tensors ? State::Top : State::Tensors;
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ == State::Entry && field_ == "shape") {
      mark(kShape);
      state_ = State::Shape;
      rank_ = 0;
    } else if (state_ == State::Entry && field_ == "data_offsets") {
      mark(kOffsets);
      state_ = State::Offsets;
      offsets_ = 0;
    } else {
      return refuse("an array");
    }
    return true;
  }

  bool end_array() override {
    state_ = State::Entry;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    fail_corrupt(where_, concat("The header is not valid JSON at byte ", position, "."));
  }

 private:
  enum class State { Top, Tensors, Entry, Shape, Offsets, Metadata };
  enum Field : unsigned { kDtype = 1, kShape = 2, kOffsets = 4, kAllFields = 7 };

  bool refuse(std::string_view got) const {
    fail_corrupt(where_, "tensors of {dtype, shape, data_offsets} and __metadata__ of strings",
                 concat(got, " at ", quote_name(name_), field_.empty() ? "" : " ",
                        field_.empty() ? std::string() : quote_name(field_)));
  }

  void mark(Field field) {
    if ((seen_ & field) != 0)
      fail_corrupt(where_, concat("A field of ", quote_name(name_), " occurs twice."));
    seen_ |= field;
  }

  void set_dtype(std::string_view text) {
    mark(kDtype);
    for (const DtypeName& known : kDtypes) {
      if (known.name == text) {
        dtype_ = known.dtype;
        return;
      }
    }
    fail_unsupported(where_,
                     concat("one of the dtypes F32, F16, BF16, F64, I8, U8, I32, I64, BOOL, "
                            "F8_E4M3 and F8_E5M2 for ",
                            quote_name(name_)),
                     quote_name(text));
  }

  void add_tensor() {
    if (seen_ != kAllFields || offsets_ != 2)
      fail_corrupt(where_,
                   concat(quote_name(name_), " lacks a dtype, a shape or two data_offsets."));
    if (static_cast<Index>(out_.tensors.size()) == kMaxTensors)
      fail_corrupt(where_, "There are more than 1000000 tensors.");
    if (begin_ > end_ || end_ > static_cast<Index>(data_.size()))
      fail_corrupt(
          where_,
          concat("offsets of ", quote_name(name_), " within ", data_.size(), " bytes of data"),
          concat("[", begin_, ", ", end_, "]"));
    Index bytes = bytes_of(dtype_);
    const std::span<const Index> dims(dims_.data(), static_cast<std::size_t>(rank_));
    for (const Index dim : dims) bytes = checked_mul(bytes, dim, where_);
    if (bytes != end_ - begin_)
      fail_corrupt(where_, concat(bytes, " bytes for ", quote_name(name_)), concat(end_ - begin_));
    out_.tensors.push_back(
        {std::move(name_), dtype_, Shape(dims),
         data_.subspan(static_cast<std::size_t>(begin_), static_cast<std::size_t>(end_ - begin_))});
    name_.clear();
    field_.clear();
  }

  std::span<const std::byte> data_;
  std::string_view where_;
  SafetensorsFile& out_;
  State state_ = State::Top;
  std::string name_, field_;
  unsigned seen_ = 0;
  bool metadata_seen_ = false;
  Dtype dtype_ = Dtype::Float32;
  std::array<Index, Shape::kMaxRank> dims_{};
  int rank_ = 0, offsets_ = 0;
  Index begin_ = 0, end_ = 0;
};

void check_names(const SafetensorsFile& file, std::string_view where) {
  const Index twice = find_duplicate(
      static_cast<Index>(file.tensors.size()),
      [&](Index i) -> std::string_view { return file.tensors[static_cast<std::size_t>(i)].name; });
  if (twice >= 0)
    fail_corrupt(where,
                 concat("Tensor ", quote_name(file.tensors[static_cast<std::size_t>(twice)].name),
                        " occurs twice."));
  const Index key =
      find_duplicate(static_cast<Index>(file.metadata.size()), [&](Index i) -> std::string_view {
        return file.metadata[static_cast<std::size_t>(i)].first;
      });
  if (key >= 0)
    fail_corrupt(where, concat("The metadata key ",
                               quote_name(file.metadata[static_cast<std::size_t>(key)].first),
                               " occurs twice."));
}

// Sorts by offset and checks that each tensor begins where the last one ended.
void check_tiling(std::vector<SafetensorsTensor>& tensors, std::span<const std::byte> data,
                  std::string_view where) {
  const auto before = [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
    if (a.bytes.data() != b.bytes.data()) return a.bytes.data() < b.bytes.data();
    return a.bytes.size() < b.bytes.size();
  };
  if (!std::is_sorted(tensors.begin(), tensors.end(), before))
    std::sort(tensors.begin(), tensors.end(), before);
  const std::byte* end = data.data();
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.bytes.data() != end)
      fail_corrupt(where, concat(quote_name(tensor.name), " at data byte ", end - data.data()),
                   concat(tensor.bytes.data() - data.data()));
    end += tensor.bytes.size();
  }
  if (end != data.data() + data.size())
    fail_corrupt(where, concat(end - data.data(), " bytes of data"), concat(data.size()));
}

std::string build_header(std::span<const SafetensorsWriter::Entry> plan,
                         const SafetensorsMetadata& metadata, Index& data_bytes) {
  Json header = Json::object();
  if (!metadata.empty()) {
    Json& strings = header["__metadata__"] = Json::object();
    for (const auto& [key, value] : metadata) strings.push_back({key, value});
  }
  std::string text = header.dump();
  text.pop_back();
  data_bytes = 0;
  for (const SafetensorsWriter::Entry& entry : plan) {
    const Index begin = data_bytes;
    data_bytes = checked_add(
        begin, checked_mul(entry.shape.elements(), bytes_of(entry.dtype), entry.name), entry.name);
    if (text.size() > 1) text += ',';
    text += concat(Json(entry.name).dump(), ":{\"dtype\":\"", safetensors_name_of(entry.dtype),
                   "\",\"shape\":",
                   Json(std::vector(entry.shape.dims().begin(), entry.shape.dims().end())).dump(),
                   ",\"data_offsets\":[", begin, ",", data_bytes, "]}");
  }
  text += '}';
  text.resize(
      static_cast<std::size_t>(round_up(static_cast<Index>(text.size()) + 8, kDataAlignment) - 8),
      ' ');
  return text;
}

}  // namespace

std::string_view safetensors_name_of(Dtype dtype) {
  for (const DtypeName& known : kDtypes) {
    if (known.dtype == dtype) return known.name;
  }
  fail_argument("safetensors", concat("The format has no dtype for ", name_of(dtype), "."));
}

const std::string* SafetensorsFile::find_metadata(std::string_view key) const {
  for (const auto& [name, value] : metadata) {
    if (name == key) return &value;
  }
  return nullptr;
}

SafetensorsFile parse_safetensors(std::span<const std::byte> file, std::string_view where) {
  std::uint64_t length = 0;
  if (file.size() < sizeof length) fail_corrupt(where, "at least 8 bytes", concat(file.size()));
  std::memcpy(&length, file.data(), sizeof length);
  if (length > static_cast<std::uint64_t>(kMaxHeader) || length > file.size() - sizeof length)
    fail_corrupt(
        where,
        concat("a safetensors file, which begins with the length of its header, here at most ",
               std::min<std::size_t>(kMaxHeader, file.size() - sizeof length)),
        concat(length));
  const std::string_view header(reinterpret_cast<const char*>(file.data()) + sizeof length, length);
  if (header.empty() || header.front() != '{')
    fail_corrupt(where, "a header that begins with '{'",
                 header.empty() ? "nothing" : quote_name(header.substr(0, 1)));

  const std::span<const std::byte> data = file.subspan(sizeof length + length);
  SafetensorsFile out;
  // Allocates once for all entries. The number of braces is an upper bound, limited by the shortest
  // entry so that braces in names cannot inflate it.
  const Index braces = std::count(header.begin(), header.end(), '{');
  out.tensors.reserve(static_cast<std::size_t>(
      std::min({braces, static_cast<Index>(header.size()) / kMinEntryBytes, kMaxTensors})));
  HeaderReader reader(data, where, out);
  Json::sax_parse(header.begin(), header.end(), &reader);
  check_names(out, where);
  check_tiling(out.tensors, data, where);
  return out;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::span<const Entry> plan,
                                     const SafetensorsMetadata& metadata, Sha256* hash)
    : file_(path), path_(path.string()) {
  if (hash != nullptr) file_.hash_into(*hash);
  for (const Entry& entry : plan)
    HONE_CHECK(!entry.name.empty() && entry.name.size() <= kMaxName, path_,
               "tensor names of 1 to 1024 bytes", entry.name.size());
  const Index twice = find_duplicate(
      static_cast<Index>(plan.size()),
      [&](Index i) -> std::string_view { return plan[static_cast<std::size_t>(i)].name; });
  HONE_REQUIRE(twice < 0, path_,
               concat("Tensor ", plan[static_cast<std::size_t>(twice)].name, " occurs twice."));
  Index data_bytes = 0;
  const std::string header = build_header(plan, metadata, data_bytes);
  HONE_CHECK(static_cast<Index>(header.size()) <= kMaxHeader, path_,
             "a header of at most 100000000 bytes", header.size());
  const std::uint64_t length = header.size();
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(header);
  planned_ = file_.bytes_written() + data_bytes;
}

void SafetensorsWriter::commit() {
  HONE_CHECK(file_.bytes_written() == planned_, path_, concat(planned_, " bytes"),
             file_.bytes_written());
  file_.commit();
}

}  // namespace hone
