// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/serve/infer_request.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <span>
#include <string_view>

#include "hone/app/torch/serve/tensor_json.h"
#include "hone/core/base64.h"
#include "hone/core/check.h"
#include "hone/server/api/api_error.h"
#include "hone/server/api/fields.h"
#include "hone/train/serve/script_file.h"

namespace hone::app {
namespace {

using server::ApiError;
using server::Fields;
using server::percent_decoded;
using torch::Tensor;

constexpr std::string_view kInputs = "inputs", kImages = "images";

// The fields beside an image in the body: "top=5&logits=true".
Json query_json(std::string_view query) {
  Json out = Json::object();
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const std::size_t equals = std::min(pair.find('='), pair.size());
    const std::string name = percent_decoded(pair.substr(0, equals));
    const std::string text = percent_decoded(pair.substr(std::min(pair.size(), equals + 1)));
    Json value = text;
    if (name == "top" || name == "logits") {
      value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
      if (value.is_discarded()) value = text;
    }
    out[name] = std::move(value);
  }
  return out;
}

Tensor read_image(const ServedModule& module, std::span<const std::byte> file,
                  const std::string& path) {
  try {
    return module.read_image(file, path);
  } catch (const Error&) {
    const ApiError told = server::to_api_error(std::current_exception());
    throw ApiError(told.status(), told.what(), path, "invalid_image");
  }
}

// Base64, or a URL "data:image/png;base64,…" of it.
Tensor read_image_text(const ServedModule& module, const Json& json, const std::string& path) {
  const auto fail_text = [&] {
    throw ApiError(400, concat(path, ": expected an image as base64"), path, "invalid_image");
  };
  if (!json.is_string()) fail_text();
  std::string text = json.get<std::string>();
  if (text.starts_with("data:")) {
    const std::size_t comma = text.find(',');
    if (comma == std::string::npos || !text.substr(0, comma).ends_with(";base64")) fail_text();
    text.erase(0, comma + 1);
  }
  std::erase_if(text, [](char c) { return c == '\n' || c == '\r'; });  // of `base64 FILE`
  const auto bytes = from_base64(text);
  if (!bytes) fail_text();
  return read_image(module, *bytes, path);
}

Tensor read_input(const ServedModule& module, const Json& json, const std::string& path) {
  Tensor input = read_tensor(json, path);
  if (module.shape.empty()) return input;
  if (input.sizes() != at::IntArrayRef(module.shape)) {
    throw ApiError(
        400,
        concat(path, ": expected an input of shape ", c10::str(at::IntArrayRef(module.shape)),
               ", got ", c10::str(input.sizes())),
        path, "invalid_shape");
  }
  input = input.to(at::kFloat);
  if (!at::isfinite(input).all().item<bool>()) {
    throw ApiError(400, concat(path, ": expected finite numbers, got others"), path);
  }
  return input;
}

void read_inputs(Fields& fields, const ServedModule& module, InferRequest& request) {
  if (fields.has(kInputs) == fields.has(kImages)) {
    throw ApiError(400, "expected either inputs or images", std::string(kInputs));
  }
  request.field = fields.has(kInputs) ? kInputs : kImages;
  const bool is_images = request.field == kImages;
  if (is_images && module.read_image == nullptr) {
    throw ApiError(400, "images: this model takes tensors only, as inputs", request.field);
  }
  const Json* const list = fields.find(request.field);
  if (!list->is_array() || list->empty() || std::ssize(*list) > kMostInputs) {
    fields.fail(request.field, concat("an array of 1 to ", kMostInputs));
  }
  for (const Json& one : *list) {
    const std::string path = concat(request.field, "[", request.inputs.size(), "]");
    request.inputs.push_back(is_images ? read_image_text(module, one, path)
                                       : read_input(module, one, path));
  }
}

Json classes_json(const Tensor& logits, const std::vector<std::string>& classes, Index top) {
  if (!at::isfinite(logits).all().item<bool>()) {
    throw ApiError(400, "The model computes NaN or infinite logits for an input.", {},
                   "invalid_input");
  }
  const std::int64_t count = std::min<std::int64_t>(top, logits.numel());
  const auto [values, labels] = at::log_softmax(logits, 0, at::kDouble).topk(count);
  Json out = Json::array();
  for (std::int64_t k = 0; k < count; ++k) {
    out.push_back({{"name", classes.at(static_cast<std::size_t>(labels[k].item<std::int64_t>()))},
                   {"probability", values[k].exp().item<double>()}});
  }
  return out;
}

}  // namespace

InferRequest read_infer_request(const server::HttpRequest& http, const ServedModule& module,
                                const std::string& id) {
  InferRequest request;
  const bool is_image = server::media_type(http).starts_with("image/");
  const Json body = is_image ? query_json(http.query) : parse_json(http.body, "the body");
  Fields fields(body);
  server::check_model(fields, id);
  request.is_base64 = server::read_base64_choice(fields);
  if (!module.classes.empty()) {
    request.top = fields.integer("top", 1, std::ssize(module.classes)).value_or(request.top);
    request.wants_logits = fields.boolean("logits").value_or(false);
  }
  if (is_image) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(http.body.data());
    request.field = "body";
    request.inputs.push_back(read_image(module, {bytes, http.body.size()}, request.field));
  } else {
    read_inputs(fields, module, request);
  }
  request.ignored = fields.ignored_names();
  return request;
}

Json answer_json(const InferRequest& request, const ServedModule& module,
                 const nn::ModuleResult& result) {
  Json out = Json::object();
  if (module.classes.empty()) {
    try {
      out["output"] = tensor_json(result.output, request.is_base64);
    } catch (const std::exception& error) {
      throw ApiError(500, concat("The model's output is wrong: ", nn::script_problem(error)), {},
                     "model_error");
    }
  } else {
    out["classes"] = classes_json(result.output, module.classes, request.top);
    if (request.wants_logits) out["logits"] = tensor_json(result.output, request.is_base64);
  }
  out["latency_ms"] = std::round(1e3 * result.latency_ms) / 1e3;
  out["batch"] = result.batch;
  return out;
}

}  // namespace hone::app
