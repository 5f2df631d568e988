// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/train/surgery/layer_tree.h"

namespace hone::nn {

// Which layers of a model. A layer is selected if it fulfils every list that is not empty; one
// entry of the list is enough. `indices` or `range` then choose from the selected layers by their
// positions among them.
struct LayerSelector {
  // A pattern is a regular expression (ECMAScript) that is searched anywhere in the dotted path:
  // "layers.*.mlp.down", "^conv1$". What is no regular expression is a part of the path in which *
  // stands for any text: "*.down".
  std::vector<std::string> pattern = {};
  std::vector<std::string> contains = {};  // parts of the path, literally
  std::vector<std::string> type = {};      // as by type_of(), whole
  std::vector<Index> indices = {};         // from 0
  struct Range {
    Index start = 0, end = 0, step = 1;  // without `end`
  };
  std::optional<Range> range = {};
};

// Reads a pattern "…", a list of patterns, or a table {pattern, contains, type: a string or a list
// of them, indices: […], range: [start, end] or [start, end, step]}. Throws Error{InvalidArgument}
// that names the key for everything else.
LayerSelector read_selector(const Json& json);

// The selected layers in the model's order, whatever the order in the selector. A module that is
// registered in several places comes once, at the first place that is selected.
//
// Throws Error{InvalidArgument} if no layer is selected, with the three paths (or types) that are
// nearest to what was looked for; if indices and range are both given; if a position is negative or
// beyond the selected layers; if a pattern, contains or type is an empty text; or if a pattern is
// longer than 500 bytes or is an expression with back-references or too many states.
std::vector<Layer> select_layers(torch::nn::Module& model, const LayerSelector& selector);

// The layer with this path. Throws Error{InvalidArgument} with the three nearest ones.
Layer find_layer(torch::nn::Module& model, std::string_view path);

}  // namespace hone::nn
