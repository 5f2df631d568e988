// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/serve/tensor_json.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/core/base64.h"
#include "hone/core/check.h"
#include "hone/server/api/api_error.h"

namespace hone::app {
namespace {

using torch::Tensor;

constexpr std::size_t kMostDimensions = 8;

struct TypeName {
  std::string_view name;
  at::ScalarType type;
};
constexpr std::array<TypeName, 10> kTypes = {{{"f32", at::kFloat},
                                              {"f64", at::kDouble},
                                              {"f16", at::kHalf},
                                              {"bf16", at::kBFloat16},
                                              {"i64", at::kLong},
                                              {"i32", at::kInt},
                                              {"i16", at::kShort},
                                              {"i8", at::kChar},
                                              {"u8", at::kByte},
                                              {"bool", at::kBool}}};

std::string_view name_of(at::ScalarType type) {
  return std::ranges::find(kTypes, type, &TypeName::type)->name;
}

[[noreturn]] void fail_value(const std::string& path, std::string_view expected,
                             std::string_view got) {
  throw server::ApiError(400, concat(path, ": expected ", expected, ", got ", got), path);
}

at::ScalarType read_type(const std::optional<std::string>& name, const std::string& path) {
  if (!name) return at::kFloat;
  const auto found = std::ranges::find(kTypes, *name, &TypeName::name);
  if (found == kTypes.end()) {
    fail_value(path, "f32, f64, f16, bf16, i64, i32, i16, i8, u8 or bool", "another type");
  }
  return found->type;
}

// The sizes that the first element of each array has; the others are checked when they are read.
std::vector<std::int64_t> sizes_of(const Json& json, const std::string& path) {
  std::vector<std::int64_t> sizes;
  for (const Json* at = &json; at->is_array(); at = &at->front()) {
    if (sizes.size() == kMostDimensions) fail_value(path, "at most 8 dimensions", "more");
    if (at->empty()) fail_value(path, "arrays with elements", "an empty one");
    sizes.push_back(std::ssize(*at));
  }
  return sizes;
}

template <class Value>
void add_values(const Json& json, std::span<const std::int64_t> sizes, const std::string& path,
                std::vector<Value>& out) {
  if (sizes.empty()) {
    if (!json.is_number() && !json.is_boolean()) fail_value(path, "numbers", json.type_name());
    if constexpr (std::is_integral_v<Value>) {
      constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
      const bool fits = !json.is_number_unsigned() || json.get<std::uint64_t>() <= kMost;
      const bool is_whole = json.is_boolean() || (json.is_number_integer() && fits);
      if (!is_whole) fail_value(path, "whole numbers of 64 bits", json.dump());
    }
    return out.push_back(json.is_boolean() ? static_cast<Value>(json.get<bool>())
                                           : json.get<Value>());
  }
  if (!json.is_array() || std::ssize(json) != sizes[0]) {
    fail_value(path, "arrays of the same length", "different ones");
  }
  for (const Json& inner : json) add_values(inner, sizes.subspan(1), path, out);
}

Tensor read_arrays(const Json& json, at::ScalarType type, const std::string& path) {
  const std::vector<std::int64_t> sizes = sizes_of(json, path);
  const auto read = [&](auto values, at::ScalarType wide) {
    add_values(json, sizes, path, values);
    return at::from_blob(values.data(), sizes, wide).clone();
  };
  const bool is_float = at::isFloatingType(type);
  const Tensor wide = is_float ? read(std::vector<double>(), at::kDouble)
                               : read(std::vector<std::int64_t>(), at::kLong);
  const Tensor out = wide.to(type);
  const bool fits =
      is_float ? at::isfinite(out).all().item<bool>() : at::equal(out.to(at::kLong), wide);
  if (!fits) fail_value(path, concat("values of the type ", name_of(type)), "larger ones");
  return out;
}

std::vector<std::int64_t> read_shape(const Json* json, const std::string& path) {
  constexpr std::string_view kWanted = "an array of at most 8 sizes of at least 1";
  if (json == nullptr || !json->is_array() || json->size() > kMostDimensions) {
    fail_value(path, kWanted, json == nullptr ? "nothing" : json->type_name());
  }
  std::vector<std::int64_t> sizes;
  for (const Json& size : *json) {
    if (!size.is_number_integer() || size < 1 || size > std::numeric_limits<std::int32_t>::max()) {
      fail_value(path, kWanted, size.is_number() ? size.dump() : size.type_name());
    }
    sizes.push_back(size.get<std::int64_t>());
  }
  return sizes;
}

// Whether a shape has so many values; its product may not fit into 64 bits.
bool has_values(const std::vector<std::int64_t>& sizes, std::int64_t values) {
  for (const std::int64_t size : sizes) values = values % size == 0 ? values / size : 0;
  return values == 1;
}

Tensor read_base64(server::Fields& fields, const std::string& text, at::ScalarType type) {
  const std::vector<std::int64_t> sizes = read_shape(fields.find("shape"), fields.path_of("shape"));
  const auto bytes = from_base64(text);
  if (!bytes) fields.fail("b64", "base64");
  const auto values = static_cast<std::int64_t>(bytes->size() / at::elementSize(type));
  if (!has_values(sizes, values) || bytes->size() % at::elementSize(type) != 0) {
    fail_value(fields.path_of("b64"), "as many bytes as the shape and the type take",
               concat(bytes->size()));
  }
  Tensor out = at::empty(sizes, type);
  std::memcpy(out.data_ptr(), bytes->data(), bytes->size());
  if (type != at::kBool) return out;
  // Only 0 and 1 are values of a bool.
  return at::from_blob(out.data_ptr(), sizes, at::kByte).ne(0);
}

template <class Value>
Json arrays_of(const Value*& at, std::span<const std::int64_t> sizes) {
  if (sizes.empty()) return *at++;
  Json out = Json::array();
  for (std::int64_t i = 0; i < sizes[0]; ++i) out.push_back(arrays_of(at, sizes.subspan(1)));
  return out;
}

template <class Value>
Json arrays_of(const Tensor& tensor) {
  const auto* at = tensor.const_data_ptr<Value>();
  return arrays_of(at, tensor.sizes());
}

}  // namespace

Tensor read_tensor(const Json& json, const std::string& path) {
  if (!json.is_object()) {
    if (!json.is_array() && !json.is_number()) {
      fail_value(path, "a tensor: nested arrays of numbers, or an object with data or b64",
                 json.type_name());
    }
    return read_arrays(json, at::kFloat, path);
  }
  server::Fields fields(json, path);
  const at::ScalarType type = read_type(fields.string("dtype"), fields.path_of("dtype"));
  const std::optional<std::string> text = fields.string("b64");
  const Json* const data = fields.find("data");
  fields.accept("shape");
  if (const std::string names = fields.ignored_names(); !names.empty()) {
    fail_value(path, "dtype, shape, and data or b64 only", names);
  }
  if ((data != nullptr) == text.has_value()) {
    fail_value(path, "either data or b64", text ? "both" : "neither");
  }
  if (text) return read_base64(fields, *text, type);
  const Tensor out = read_arrays(*data, type, fields.path_of("data"));
  if (!fields.has("shape")) return out;
  const std::vector<std::int64_t> shape = read_shape(fields.find("shape"), fields.path_of("shape"));
  const bool fits =
      out.dim() == 1 ? has_values(shape, out.numel()) : out.sizes() == at::IntArrayRef(shape);
  if (!fits) {
    fail_value(fields.path_of("shape"), concat("that of the data, ", c10::str(out.sizes())),
               c10::str(at::IntArrayRef(shape)));
  }
  return out.reshape(shape);
}

Json tensor_json(const Tensor& tensor, bool is_base64) {
  const Tensor values = tensor.detach().cpu().contiguous();
  const auto found = std::ranges::find(kTypes, values.scalar_type(), &TypeName::type);
  if (found == kTypes.end()) {
    fail_unsupported("forward", "an output of numbers", c10::str(values.scalar_type()));
  }
  if (is_base64) {
    const std::span bytes(static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes());
    return {{"dtype", found->name},
            {"shape", std::vector<std::int64_t>(values.sizes().begin(), values.sizes().end())},
            {"b64", to_base64(bytes)}};
  }
  if (values.scalar_type() == at::kBool) return arrays_of<bool>(values);
  if (values.is_floating_point()) return arrays_of<double>(values.to(at::kDouble));
  return arrays_of<std::int64_t>(values.to(at::kLong));
}

}  // namespace hone::app
