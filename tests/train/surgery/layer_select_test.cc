// SPDX-License-Identifier: Apache-2.0
#include "hone/train/surgery/layer_select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/error_of.h"
#include "tests/train/surgery/small_net.h"

namespace hone::nn {
namespace {

using test::refusal;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

using Paths = std::vector<std::string>;

Paths select(torch::nn::Module& model, const Json& selector) {
  Paths paths;
  for (const Layer& layer : select_layers(model, read_selector(selector))) {
    paths.push_back(layer.path);
  }
  return paths;
}

template <class T>
struct PairedImpl : torch::nn::Module {};

TEST(LayerSelect, a_pattern_is_an_expression_that_is_searched_anywhere) {
  SmallNet net;
  EXPECT_THAT(select(*net, "layers.*.down"), ElementsAre("layers.0.down", "layers.1.down"));
  EXPECT_THAT(select(*net, "[01]\\.(up|typed)$"),
              ElementsAre("layers.0.up", "layers.0.typed", "layers.1.up", "layers.1.typed"));
  EXPECT_THAT(select(*net, "^head$"), ElementsAre("head"));
  EXPECT_THAT(select(*net, "n"),
              ElementsAre("layers.0.down", "layers.1.down", "head.norm", "unused"));
}

TEST(LayerSelect, what_is_no_expression_is_a_part_of_the_path_with_stars) {
  SmallNet net;
  EXPECT_THAT(select(*net, "*.down"), ElementsAre("layers.0.down", "layers.1.down"));
  EXPECT_THAT(select(*net, "*s.1.*d"), ElementsAre("layers.1.down", "layers.1.typed"));
  EXPECT_THAT(refusal([&] { select(*net, "[.up"); }), HasSubstr("No layer fits pattern '[.up'."));
  EXPECT_THAT(refusal([&] { select(*net, "*+up"); }), HasSubstr("No layer fits"));
}

TEST(LayerSelect, the_order_is_the_models_whatever_the_selector_says) {
  SmallNet net(12);
  EXPECT_THAT(select(*net, {"layers.11.up", "unused", "layers.2.up", "layers.11"}),
              ElementsAre("layers.2.up", "layers.11", "layers.11.up", "layers.11.down",
                          "layers.11.typed", "unused"));
  EXPECT_THAT(select(*net, {{"pattern", "up$"}, {"indices", {11, 2, 10, 2}}}),
              ElementsAre("layers.2.up", "layers.10.up", "layers.11.up"));
}

TEST(LayerSelect, a_table_demands_all_of_its_keys) {
  SmallNet net;
  const Json base{{"pattern", {"up$", "typed$"}}, {"contains", ".1."}, {"type", "Linear"}};
  EXPECT_THAT(select(*net, base), ElementsAre("layers.1.up", "layers.1.typed"));
  EXPECT_THAT(select(*net, {{"type", {"Tanh", "Mlp"}}}),
              ElementsAre("layers.0", "layers.1", "head.act"));
  EXPECT_THAT(select(*net, {{"contains", {"l.", ".o"}}}), ElementsAre("head.out"));  // literally
  EXPECT_THAT(select(*net, {{"type", "Linear"}, {"range", {1, 6, 2}}}),
              ElementsAre("layers.0.down", "layers.1.up", "layers.1.typed"));
  EXPECT_THAT(select(*net, {{"type", "Linear"}, {"range", {7, 9}}}),
              ElementsAre("head.out", "unused"));
  EXPECT_THAT(select(*net, Json::object()), SizeIs(14));
}

TEST(LayerSelect, a_slot_is_the_layer_that_it_holds) {
  SmallNet net;
  for (const Layer& layer : layers_of(*net)) {
    EXPECT_NE(type_of(*layer.module), "Slot");
    EXPECT_THAT(layer.path, testing::Not(HasSubstr("layer.")));
    EXPECT_EQ(layer.slot != nullptr,
              layer.name() == "up" || layer.name() == "down" || layer.name() == "unused");
  }
  torch::nn::Sequential nested{Slot(torch::nn::AnyModule(Slot(Mlp())))};
  EXPECT_THAT(select(*nested, "."), ElementsAre("0", "0.up", "0.down", "0.typed"));
}

TEST(LayerSelect, a_module_in_several_places_comes_once) {
  const torch::nn::Linear shared(8, 8);
  torch::nn::Sequential net(shared, torch::nn::Tanh(), shared);
  EXPECT_THAT(select(*net, {{"type", "Linear"}}), ElementsAre("0"));
  EXPECT_THAT(select(*net, "[12]"), ElementsAre("1", "2"));
}

TEST(LayerSelect, no_match_names_the_three_nearest) {
  SmallNet net;
  EXPECT_EQ(refusal([&] { select(*net, "layer.1.upp"); }),
            "[layer selection] No layer fits pattern 'layer.1.upp'. The nearest paths: "
            "'layers.1.up', 'layers.0.up', 'layers.0'.");
  EXPECT_THAT(refusal([&] {
                select(*net, {{"type", {"Liner", "x"}}});
              }),
              HasSubstr("No layer has the type 'Liner'. The nearest types: 'Linear', "));
  EXPECT_THAT(refusal([&] {
                select(*net, {{"contains", {"down", "x"}}, {"type", "Tanh"}});
              }),
              HasSubstr("No layer fits contains 'down' or 1 more, type 'Tanh'. The nearest paths"));
  EXPECT_THAT(refusal([&] { find_layer(*net, "head.nrom"); }),
              HasSubstr("There is no layer 'head.nrom'. The nearest paths: 'head.norm', "));
  torch::nn::Linear leaf(2, 2);
  EXPECT_THAT(refusal([&] { find_layer(*leaf, "x"); }), HasSubstr("The model has no layers."));
}

TEST(LayerSelect, errors_name_the_key_that_is_wrong) {
  SmallNet net;
  const auto refused = [&](const Json& selector) {
    return refusal([&] { select(*net, selector); });
  };
  EXPECT_THAT(
      refused(3),
      HasSubstr("expected a string or a list of strings as selector (or a table), got number"));
  EXPECT_THAT(refused(Json::array()), HasSubstr("as selector (or a table), got an empty list"));
  EXPECT_THAT(refused({{"pattern", 1}}), HasSubstr("list of strings as pattern, got number"));
  EXPECT_THAT(refused({{"contains", {1}}}), HasSubstr("list of strings as contains, got array"));
  EXPECT_THAT(refused({{"type", nullptr}}), HasSubstr("list of strings as type, got null"));
  EXPECT_THAT(refused({{"indices", 1}}), HasSubstr("list of whole numbers as indices, got number"));
  EXPECT_THAT(refused({{"indices", {1.5}}}), HasSubstr("whole numbers as indices"));
  EXPECT_THAT(refused({{"indices", {std::uint64_t{1} << 63}}}), HasSubstr("as indices"));
  EXPECT_THAT(refused({{"range", {1}}}), HasSubstr("[start, end, step] as range, got 1 numbers"));
  EXPECT_THAT(refused({{"typ", "Linear"}}), HasSubstr("Did you mean 'type'?"));
  for (const char* key : {"pattern", "contains", "type"}) {
    EXPECT_THAT(refused({{key, {"up", ""}}}), HasSubstr("A pattern, contains or type is empty"));
  }
  const auto positions = [&](const char* key, const Json& value) {
    return refused({{"type", "Mlp"}, {key, value}});
  };
  EXPECT_THAT(positions("indices", {-1}), HasSubstr("below the 2 selected layers, got -1"));
  EXPECT_THAT(positions("indices", {0, 2}), HasSubstr("below the 2 selected layers, got 2"));
  EXPECT_THAT(positions("range", {0, 3}), HasSubstr("within the 2 selected layers, got [0, 3]"));
  EXPECT_THAT(positions("range", {1, 1}), HasSubstr("got [1, 1]"));
  EXPECT_THAT(positions("range", {-1, 1}), HasSubstr("got [-1, 1]"));
  EXPECT_THAT(positions("range", {0, 2, 0}), HasSubstr("a step of at least 1, got 0"));
  EXPECT_THAT(refused({{"indices", {0}}, {"range", {0, 1}}}), HasSubstr("Both indices and range"));
}

TEST(LayerSelect, hostile_patterns_end) {
  torch::nn::ModuleDict net;
  net->update({{std::string(500, 'a'), torch::nn::Linear(1, 1).ptr()}});
  const auto refused = [&](const std::string& pattern) {
    return refusal([&] { select(*net, pattern); });
  };
  EXPECT_THAT(refused("(a*)*b"), HasSubstr("No layer fits"));  // exponential by backtracking
  EXPECT_THAT(refused("(a)\\1"), HasSubstr("too complex"));
  EXPECT_THAT(refused("(((a{99}){99}){99}){99}"), HasSubstr("too complex"));
  EXPECT_THAT(refused(std::string(501, '(')), HasSubstr("at most 500 bytes, got 501"));
  EXPECT_THAT(refused(std::string(500, '(')), HasSubstr("No layer fits"));
  EXPECT_THAT(refused("\xff\n"), HasSubstr("No layer fits pattern '\\xff\\x0a'"));
}

TEST(LayerTree, shows_paths_types_and_parameters) {
  SmallNet net(1);
  EXPECT_EQ(module_tree(*net),
            "(SmallNet)/\n"
            "├── layers (ModuleList)/\n"
            "│   └── 0 (Mlp)/\n"
            "│       ├── up (Linear), in a Slot, 144 parameters\n"
            "│       ├── down (Linear), in a Slot, 136 parameters\n"
            "│       └── typed (Linear), 72 parameters\n"
            "├── head (Sequential)/\n"
            "│   ├── norm (Linear), 72 parameters\n"
            "│   ├── act (Tanh)\n"
            "│   └── out (Linear), 27 parameters\n"
            "└── unused (Linear), in a Slot, 72 parameters\n");
}

TEST(LayerTree, types_are_class_names) {
  EXPECT_EQ(type_of(*torch::nn::Linear(1, 1)), "Linear");
  EXPECT_EQ(type_of(PairedImpl<std::vector<int>>()), "Paired");
  EXPECT_EQ(type_of(torch::nn::Module()), "Module");
}

}  // namespace
}  // namespace hone::nn
