// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/factored_config.h"

#include <algorithm>
#include <array>
#include <optional>

#include "hone/core/check.h"
#include "hone/core/names.h"

namespace hone::model_io {
namespace {

using Mode = FactoredLayer::Mode;

constexpr const char* kKey = "factored_layers";
constexpr Index kMaxRank = Index{1} << 30;
constexpr std::array<std::string_view, 3> kModes{"low_rank", "sketched", "projected"};

std::string_view name_of(Mode mode) { return kModes[static_cast<std::size_t>(mode)]; }

std::uint64_t read_seed(const JsonFields& fields) {
  const Json* seed = fields.find("seed");
  if (seed == nullptr) fields.refuse("seed", "a whole number from 0 to 2^64 - 1", "none");
  // A number below 0 is a signed one, and one without a sign is not.
  if (!seed->is_number_unsigned() && !(seed->is_number_integer() && seed->get<Index>() >= 0))
    fields.refuse("seed", "a whole number from 0 to 2^64 - 1", seed->dump());
  return seed->get<std::uint64_t>();
}

Index check_count(const JsonFields& fields, std::string_view key, Index value) {
  if (value < 1 || value > kMaxRank) fields.refuse(key, "1 to 2^30", concat(value));
  return value;
}

void check_keys(const Json& json, Mode mode, const JsonFields& fields) {
  constexpr std::array<std::string_view, 4> kKeys = {"mode", "rank", "terms", "seed"};
  const std::size_t known = mode == Mode::Sketched ? kKeys.size() : 2;
  for (const auto& [key, value] : json.items()) {
    if (std::find(kKeys.begin(), kKeys.begin() + known, key) == kKeys.begin() + known)
      fail_corrupt(fields.where(),
                   concat("A layer of mode ", name_of(mode), " has no key ", quote_name(key), "."));
  }
}

FactoredLayer read_layer(const std::string& name, const Json& json, const std::string& where) {
  const JsonFields fields(json, concat(where, ": ", kKey, ": ", quote_name(name)));
  const std::optional<std::string> mode = fields.string("mode");
  const auto found = std::ranges::find(kModes, mode.value_or(""));
  if (found == kModes.end())
    fields.refuse("mode", "low_rank, sketched or projected", mode ? quote_name(*mode) : "none");
  FactoredLayer layer;
  layer.name = name;
  layer.mode = static_cast<Mode>(found - kModes.begin());
  check_keys(json, layer.mode, fields);
  layer.rank = check_count(fields, "rank", fields.required_integer("rank"));
  if (layer.mode != Mode::Sketched) return layer;
  layer.terms = check_count(fields, "terms", fields.integer("terms").value_or(1));
  layer.seed = read_seed(fields);
  return layer;
}

}  // namespace

std::vector<FactoredLayer> read_factored_layers(const JsonFields& config) {
  std::vector<FactoredLayer> out;
  const Json* layers = config.find(kKey);
  if (layers == nullptr) return out;
  if (!layers->is_object()) config.refuse(kKey, "a JSON object", layers->type_name());
  for (const auto& [name, json] : layers->items()) {
    out.push_back(read_layer(name, json, config.where()));
  }
  return out;
}

Json write_factored_layers(const std::vector<FactoredLayer>& layers) {
  Json out = Json::object();
  for (const FactoredLayer& layer : layers) {
    Json json = {{"mode", name_of(layer.mode)}, {"rank", layer.rank}};
    if (layer.mode == Mode::Sketched) {
      json["terms"] = layer.terms;
      json["seed"] = layer.seed;
    }
    out[layer.name] = std::move(json);
  }
  return out;
}

void refuse_factored(const Architecture& architecture, const std::string& where) {
  if (architecture.factored.empty()) return;
  const FactoredLayer& first = architecture.factored.front();
  fail_unsupported(
      where,
      concat("Layer ", first.name, " is factored (", name_of(first.mode), ", rank ", first.rank,
             "), and this needs dense layers; use the dense model that it was made from."));
}

}  // namespace hone::model_io
