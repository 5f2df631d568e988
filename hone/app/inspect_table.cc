// SPDX-License-Identifier: Apache-2.0
#include "hone/app/inspect_table.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/names.h"
#include "hone/core/text_format.h"

namespace hone::app {
namespace {

using Rows = std::vector<std::vector<std::string>>;

constexpr std::size_t kShownClasses = 12;

// A string as it is, any other value in JSON; nothing that acts on a terminal.
std::string text_of(const Json& value) {
  return escape_controls(value.is_string()
                             ? value.get<std::string>()
                             : value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

bool has(const Json& json, const char* key) { return json.contains(key) && !json[key].is_null(); }

std::string count_of(const Json& json, const char* key) {
  return group_digits(json[key].get<Index>());
}

bool is_language_model(const Json& document) {
  return has(document, "architecture") && document["architecture"].contains("kv_heads");
}

std::string describe_layers(const Json& a) {
  return concat(text_of(a["family"]), ", ", count_of(a, "layers"), " layers of ",
                count_of(a, "hidden_size"), ", MLP of ", count_of(a, "intermediate_size"), ", ",
                count_of(a, "heads"), " heads of ", count_of(a, "head_dim"), ", ",
                count_of(a, "kv_heads"), " for keys and values");
}

std::string describe_kv_cache(const Json& cache) {
  const Json& f16 = cache["f16"];
  return concat(format_bytes(f16["bytes_per_token"].get<Index>()), " a token, ",
                format_bytes(f16["bytes_at_context"].get<Index>()), " for the context, in f16");
}

std::string describe_tokenizer(const Json& tokenizer) {
  if (tokenizer.is_null()) return "none";
  return concat(text_of(tokenizer["kind"]), ", ", count_of(tokenizer, "size"), " tokens, ",
                tokenizer["adds_bos"].get<bool>() ? "adds BOS" : "adds no BOS");
}

std::string describe_classes(const Json& classes) {
  std::string text = concat(group_digits(std::ssize(classes)), ": ");
  for (std::size_t i = 0; i < std::min(classes.size(), kShownClasses); ++i) {
    text += concat(i == 0 ? "" : ", ", text_of(classes[i]));
  }
  return classes.size() > kShownClasses ? text + ", …" : text;
}

// "architecture.heads" and so on, one for each field.
void add_fields(const char* name, const Json& object, Rows& rows) {
  for (const auto& [key, value] : object.items()) {
    rows.push_back({escape_controls(concat(name, ".", key)), text_of(value)});
  }
}

void add_language_model(const Json& document, bool each, Rows& rows) {
  const Json& architecture = document["architecture"];
  rows.push_back({"architecture", describe_layers(architecture)});
  if (each) add_fields("architecture", architecture, rows);
  if (each) add_fields("rope", document["rope"], rows);
  rows.push_back({"context", count_of(architecture, "context") + " tokens"});
  rows.push_back({"KV cache", describe_kv_cache(document["kv_cache"])});
  rows.push_back({"vocabulary",
                  count_of(architecture, "vocab_size") +
                      (document["tied"].get<bool>() ? " rows, which are the output matrix as well"
                                                    : " rows, and an output matrix of its own")});
  rows.push_back({"tokenizer", describe_tokenizer(document["tokenizer"])});
}

Rows summary_of(const Json& document, bool each) {
  Rows rows{{"format", text_of(document["format"])}};
  for (const char* key : {"name", "license"}) {
    if (has(document, key)) rows.push_back({key, text_of(document[key])});
  }
  if (is_language_model(document)) {
    add_language_model(document, each, rows);
  } else if (has(document, "architecture")) {
    add_fields("architecture", document["architecture"], rows);
  }
  if (document.contains("chat_template")) {
    const Json& chat = document["chat_template"];
    rows.push_back({"chat template", chat.is_null() || chat == false ? "none" : "yes"});
  }
  if (has(document, "not_served")) rows.push_back({"not served", text_of(document["not_served"])});
  if (has(document, "classes")) rows.push_back({"classes", describe_classes(document["classes"])});
  if (has(document, "metadata")) add_fields("metadata", document["metadata"], rows);
  rows.push_back({"parameters", count_of(document, "parameters")});
  rows.push_back({"size", concat(format_bytes(document["bytes"].get<Index>()), " (",
                                 count_of(document, "bytes"), " bytes)")});
  return rows;
}

struct TypeSum {
  std::string type;
  Index tensors = 0, bytes = 0;
};

// The tensors by type, the largest sum first.
std::vector<TypeSum> sum_types(const Json& tensors) {
  std::vector<TypeSum> sums;
  for (const Json& tensor : tensors) {
    const std::string type = tensor["dtype"].get<std::string>();
    auto found = std::ranges::find(sums, type, &TypeSum::type);
    if (found == sums.end()) found = sums.insert(sums.end(), {.type = type});
    ++found->tensors;
    found->bytes += tensor["bytes"].get<Index>();
  }
  std::ranges::stable_sort(sums, std::greater(), &TypeSum::bytes);
  return sums;
}

std::string type_table(const Json& tensors) {
  const std::vector<TypeSum> sums = sum_types(tensors);
  Index all = 0;
  for (const TypeSum& sum : sums) all += sum.bytes;
  Rows rows{{"type", "tensors", "size", "share"}};
  for (const auto& [type, count, bytes] : sums) {
    const double share = all > 0 ? static_cast<double>(bytes) / static_cast<double>(all) : 0;
    rows.push_back({type, group_digits(count), format_bytes(bytes), fixed(100 * share, 1) + " %"});
  }
  return format_table(rows, "lrrr");
}

bool has_stats(const Json& tensors) {
  return std::ranges::any_of(tensors, [](const Json& tensor) { return tensor.contains("min"); });
}

std::string tensor_table(const Json& tensors) {
  Rows rows{{"", "tensor", "type", "shape", "bytes"}};
  if (has_stats(tensors)) rows[0].insert(rows[0].end(), {"min", "max", "NaN", "inf"});
  for (const Json& tensor : tensors) {
    rows.push_back({"", text_of(tensor["name"]), text_of(tensor["dtype"]), tensor["shape"].dump(),
                    count_of(tensor, "bytes")});
    if (!tensor.contains("min")) continue;
    for (const char* key : {"min", "max", "nan", "inf"}) rows.back().push_back(tensor[key].dump());
  }
  return format_table(rows, "lllrrrrrr");
}

}  // namespace

std::string describe_inspection(const Json& document, bool each) {
  const Json& tensors = document["tensors"];
  std::string text = format_table(summary_of(document, each), "ll");
  if (!tensors.empty()) text += "\n" + type_table(tensors);
  if (each || has_stats(tensors)) text += "\n" + tensor_table(tensors);
  return text;
}

}  // namespace hone::app
