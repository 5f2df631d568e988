// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/family/layer_windows.h"

#include <algorithm>
#include <string>

#include "hone/core/check.h"
#include "hone/core/names.h"

namespace hone::model_io {
namespace {

constexpr const char *kWindow = "sliding_window", *kLayerTypes = "layer_types";
constexpr const char *kUse = "use_sliding_window", *kFirst = "max_window_layers";
constexpr const char* kPeriod = "sliding_window_pattern";
constexpr std::string_view kFull = "full_attention", kSliding = "sliding_attention";
constexpr Index kDefaultFirst = 28;

// Layers without a list of types.
bool has_window(const JsonFields& config, const Family& family, Index layer) {
  switch (family.window) {
    case WindowRule::None:
      return false;
    case WindowRule::All:
      return true;
    case WindowRule::Switch:
      return layer >= config.integer(kFirst).value_or(kDefaultFirst);
    case WindowRule::Period:
      break;
  }
  return (layer + 1) % family.window_period != 0;
}

// Which layers have a window.
std::vector<bool> windowed_layers(const JsonFields& config, const Family& family, Index layers) {
  std::vector<bool> out;
  const Json* types = family.window == WindowRule::All ? nullptr : config.find(kLayerTypes);
  if (types == nullptr) {
    for (Index layer = 0; layer < layers; ++layer) out.push_back(has_window(config, family, layer));
    return out;
  }
  if (!types->is_array() || std::ssize(*types) != layers)
    config.refuse(kLayerTypes, concat("a list of ", layers, " types"),
                  types->is_array() ? concat(types->size()) : types->type_name());
  for (const Json& type : *types) {
    const std::string name = type.is_string() ? type.get<std::string>() : type.dump();
    if (name != kFull && name != kSliding)
      fail_unsupported(config.where(), concat(kFull, " or ", kSliding, " in ", kLayerTypes),
                       quote_name(name));
    out.push_back(name == kSliding);
  }
  return out;
}

}  // namespace

std::vector<Index> read_windows(const JsonFields& config, const Family& family, Index layers) {
  if (family.window == WindowRule::None || layers < 1 || layers > Index{1} << 16) return {};
  Index window =
      config.mentions(kWindow) ? config.integer(kWindow).value_or(0) : family.defaults.window;
  if (window < 0) config.refuse(kWindow, "a number of at least 0", concat(window));
  if (family.window == WindowRule::Switch && !config.boolean(kUse).value_or(false)) window = 0;
  if (config.has(kPeriod) && !config.has(kLayerTypes) && family.window == WindowRule::Period &&
      config.integer(kPeriod) != family.window_period)
    fail_unsupported(config.where(),
                     concat(family.window_period, " for ", kPeriod, ", or ", kLayerTypes),
                     concat(*config.integer(kPeriod)));
  if (window == 0) return {};
  std::vector<Index> windows;
  for (const bool windowed : windowed_layers(config, family, layers))
    windows.push_back(windowed ? window : 0);
  if (std::ranges::all_of(windows, [](Index one) { return one == 0; })) windows.clear();
  return windows;
}

Index single_window(const Architecture& a, std::string_view where) {
  Index found = 0;
  for (const Index window : a.windows) {
    if (window == 0) continue;
    if (found != 0 && found != window)
      fail_unsupported(where, "one size of attention window", concat(found, " and ", window));
    found = window;
  }
  return found;
}

void write_windows(const Architecture& a, const Family& family, Json& config) {
  const Index window = single_window(a, "config.json");
  const bool all = std::ranges::all_of(a.windows, [](Index one) { return one != 0; });
  switch (family.window) {
    case WindowRule::None:
      if (window != 0)
        fail_unsupported("config.json",
                         concat("The class ", family.model_class, " has no attention window."));
      return;
    case WindowRule::All:
      if (window != 0 && !all)
        fail_unsupported("config.json", concat("The class ", family.model_class,
                                               " has one attention window for all layers."));
      config[kWindow] = window != 0 ? Json(window) : Json(nullptr);
      return;
    case WindowRule::Switch:
      config[kUse] = window != 0;
      config[kWindow] = window != 0 ? Json(window) : Json(nullptr);
      if (window == 0) return;
      config[kFirst] =
          std::ranges::find_if(a.windows, [](Index one) { return one != 0; }) - a.windows.begin();
      break;
    case WindowRule::Period:
      config[kWindow] = window != 0 ? window : a.context;
      break;
  }
  Json types = Json::array();
  for (Index layer = 0; layer < a.layers; ++layer)
    types.push_back(a.window_of(layer) != 0 ? kSliding : kFull);
  config[kLayerTypes] = std::move(types);
}

std::vector<Index> default_windows(const Family& family, Index window, Index layers) {
  std::vector<Index> windows;
  if (window == 0 || family.window == WindowRule::None) return windows;
  for (Index layer = 0; layer < layers; ++layer) {
    const bool full =
        family.window == WindowRule::Period && (layer + 1) % family.window_period == 0;
    windows.push_back(full ? 0 : window);
  }
  return windows;
}

}  // namespace hone::model_io
