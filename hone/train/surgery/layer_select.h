// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/train/surgery/layer_tree.h"

namespace hone::nn {

// Selects layers of a model. A layer is selected if it matches every nonempty list; one matching
// entry per list is enough. `indices` or `range` then choose from the selected layers by position.
struct LayerSelector {
  // A pattern is a regular expression (ECMAScript) that may match anywhere in the dotted path:
  // "layers.*.mlp.down", "^conv1$". An entry that is not a regular expression is a part of the
  // path, in which * matches any text: "*.down".
  std::vector<std::string> pattern = {};
  std::vector<std::string> contains = {};  // parts of the path, literally
  std::vector<std::string> type = {};      // full names, as in type_of()
  std::vector<Index> indices = {};         // from 0
  struct Range {
    Index start = 0, end = 0, step = 1;  // `end` is exclusive
  };
  std::optional<Range> range = {};
};

// Reads a pattern "…", a list of patterns, or a table {pattern, contains, type: a string or a list
// of them, indices: […], range: [start, end] or [start, end, step]}. Throws Error{InvalidArgument}
// that names the key for everything else.
LayerSelector read_selector(const Json& json);

// Returns the selected layers in the order of the model. A module that is registered in several
// places is returned once, at the first selected place.
//
// Throws Error{InvalidArgument} that lists the three nearest paths (or types) if no layer is
// selected. Also throws Error{InvalidArgument} if indices and range are both set; if a position is
// negative or beyond the selected layers; if a pattern, contains or type is empty; or if a pattern
// is longer than 500 bytes, has back-references, or has too many states.
std::vector<Layer> select_layers(torch::nn::Module& model, const LayerSelector& selector);

// The layer with this path. Throws Error{InvalidArgument} with the three nearest ones.
Layer find_layer(torch::nn::Module& model, std::string_view path);

}  // namespace hone::nn
