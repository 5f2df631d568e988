// SPDX-License-Identifier: Apache-2.0
#include "hone/tune/search/layer_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>

#include "hone/core/file/file_io.h"
#include "hone/core/philox.h"
#include "hone/tune/search/rank_plan.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone::tune {
namespace {

using test::refusal;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Killed : std::runtime_error {
  Killed() : std::runtime_error("killed") {}
};

// What one replacement costs in quality, and saves of a run's time of 1.
struct Effect {
  double loss = 0, saved = 0;
};
using Effects = std::function<Effect(const std::string& layer, const Point& point)>;

// A model whose quality and time are 1 without replacements.
class Model {
 public:
  explicit Model(Effects effects) : effects_(std::move(effects)) {}

  LayerCallbacks callbacks() {
    return {.apply =
                [this](std::span<const LayerChoice> choices) {
                  EXPECT_THAT(replaced, IsEmpty()) << "apply() on a model that is not restored";
                  replaced.assign(choices.begin(), choices.begin() + 1);
                  step();  // half-way
                  replaced.assign(choices.begin(), choices.end());
                },
            .restore =
                [this] {
                  replaced.clear();
                  step();
                },
            .quality =
                [this](double, Index repeat) {
                  step();
                  ++qualities;
                  return quality(replaced) + (noise ? noise(repeat) : 0);
                },
            .cost =
                [this](Index, double unchanged) {
                  step();
                  ++costs;
                  EXPECT_EQ(unchanged, replaced.empty() ? 0 : cost({}));
                  return cost(replaced);
                },
            .was_executed =
                [this](const std::string& layer) {
                  step();
                  return layer != dead_layer;
                }};
  }

  double quality(std::span<const LayerChoice> choices) const {
    double quality = 1;
    for (const auto& choice : choices) quality -= effects_(choice.layer, choice.point).loss;
    const auto count = static_cast<double>(choices.size());
    return quality - interaction * std::max(0.0, count - 1);
  }
  double cost(std::span<const LayerChoice> choices) const {
    double time = 1;
    for (const auto& choice : choices) time -= effects_(choice.layer, choice.point).saved;
    return time;
  }
  CostComparison comparison(std::span<const LayerChoice> choices) const {
    const double ratio = 1 / cost(choices);
    return {1, cost(choices), {ratio, ratio - uncertainty, ratio + uncertainty}};
  }

  std::vector<LayerChoice> replaced;
  std::function<double(Index repeat)> noise;
  double uncertainty = 0.01;  // of comparisons
  double interaction = 0;     // what each replacement beyond the first loses besides
  std::string dead_layer;
  Index calls = 0, qualities = 0, costs = 0;
  Index killed_at = -1;  // the call that throws

 private:
  void step() {
    if (calls++ == killed_at) throw Killed();
  }

  Effects effects_;
};

Index rank_of(const Point& point) { return std::get<Index>(point.at("rank")); }

Space ranks(std::vector<Value> choices) { return Space({{"rank", Categorical{choices}}}); }
Space ranks() { return ranks({Index{16}, Index{32}, Index{64}}); }

// The smaller the rank, the more is lost and saved.
Effect typical(const std::string&, const Point& point) {
  const auto rank = static_cast<double>(rank_of(point));
  return {1 / rank, 0.2 - rank / 640};
}

LayerSearchOptions grid(std::optional<double> least_quality) {
  return {.method = GridMethod{}, .least_quality = least_quality};
}

LayerSearchResult search(Model& model, const LayerSearchOptions& options,
                         std::vector<LayerGroup> groups = {{{"a", "b"}, ranks()}}) {
  return search_layers(groups, model.callbacks(), options);
}

// The layers of each evaluation of a log.
std::vector<Json> evaluated(const std::filesystem::path& log) {
  std::vector<Json> layers;
  const Json json = read_json_file(log);
  for (const Json& evaluation : json["evaluations"]) layers.push_back(evaluation["layers"]);
  return layers;
}

TEST(LayerSearch, tells_a_feasible_space_from_an_infeasible_one) {
  Model model(typical);
  const LayerSearchResult feasible = search(model, grid(0.93));
  ASSERT_TRUE(feasible.model);
  EXPECT_FALSE(feasible.nearest);
  EXPECT_TRUE(feasible.undone.empty());
  ASSERT_EQ(feasible.model->choices.size(), 2u);
  for (const LayerChoice& choice : feasible.model->choices) EXPECT_EQ(rank_of(choice.point), 32);
  EXPECT_GE(model.quality(feasible.model->choices), 0.93);  // evaluated again
  EXPECT_DOUBLE_EQ(model.quality(feasible.model->choices), feasible.model->quality[0]);
  EXPECT_DOUBLE_EQ(model.cost(feasible.model->choices), feasible.model->cost[0]);
  EXPECT_EQ(feasible.unchanged.quality[0], 1);

  const LayerSearchResult infeasible = search(model, grid(0.99));
  EXPECT_FALSE(infeasible.model);
  ASSERT_TRUE(infeasible.nearest);
  EXPECT_EQ(rank_of(infeasible.nearest->choices[0].point), 64);
  EXPECT_EQ(infeasible.nearest->quality[0], 1 - 1.0 / 64);
  const Json json = to_json(infeasible);
  EXPECT_EQ(json["feasible"], false);
  EXPECT_FALSE(json.contains("model"));
  EXPECT_EQ(json["nearest"]["layers"], Json({{"a", {{"rank", 64}}}}));
  EXPECT_EQ(json["nearest"]["quality"]["mean"], 1 - 1.0 / 64);
  EXPECT_TRUE(json["nearest"]["cost"].is_null());  // it was not measured
}

TEST(LayerSearch, the_lower_end_on_samples_held_back_decides_whether_a_model_is_feasible) {
  const test::TemporaryFolder folder;
  LayerSearchOptions options = grid(0.93);
  options.log = folder.path() / "search.json";
  double low = -0.069;
  Index asked = 0;
  const auto run = [&] {
    Model model(typical);
    LayerCallbacks callbacks = model.callbacks();
    callbacks.held_back = [&] {
      ++asked;
      EXPECT_FALSE(model.replaced.empty());
      return QualityChange{-0.01, low};
    };
    const std::vector<LayerGroup> groups{{{"a", "b"}, ranks()}};
    return search_layers(groups, callbacks, options);
  };
  LayerSearchResult result = run();
  ASSERT_TRUE(result.model);
  EXPECT_EQ(result.model->held_back->low, low);
  EXPECT_EQ(asked, 1) << "of the model with all replacements";
  EXPECT_EQ(run().model->held_back->low, low) << "from the log";
  EXPECT_EQ(asked, 1);
  std::filesystem::remove(options.log);
  low = -0.071;  // below what the limit allows
  result = run();
  EXPECT_FALSE(result.model);
  EXPECT_EQ(result.undone.size(), 2u);
  EXPECT_EQ(to_json(result)["nearest"]["held_back"].is_null(),
            !result.nearest->held_back.has_value());
}

TEST(LayerSearch, threshold_and_cost_choose_the_objective) {
  Model model(typical);
  const auto best_rank = [&](const LayerSearchOptions& options, bool with_cost) {
    model.costs = 0;
    LayerCallbacks callbacks = model.callbacks();
    if (!with_cost) callbacks.cost = nullptr;
    const auto groups = std::vector<LayerGroup>{{{"a"}, ranks()}};
    const auto result = search_layers(groups, callbacks, options);
    return result.model ? rank_of(result.model->choices[0].point) : 0;
  };
  EXPECT_EQ(best_rank(grid(0.95), true), 32);  // the cheapest above the threshold
  EXPECT_EQ(model.costs, 4);  // the unchanged model, 32, 64, the returned model; not 16
  EXPECT_EQ(best_rank(grid(0.95), false), 64);
  EXPECT_EQ(best_rank(grid(0.99), false), 0);  // infeasible
  EXPECT_EQ(best_rank(grid({}), true), 64);
  EXPECT_EQ(model.costs, 0);
  EXPECT_EQ(best_rank(grid({}), false), 64);
}

TEST(LayerSearch, undoes_what_loses_most_quality_for_its_time) {
  const std::map<std::string, Effect> effects{
      {"a", {0.04, 0.3}}, {"b", {0.05, 0.1}}, {"c", {0.03, 0.1}}};
  Model model([&](const std::string& layer, const Point&) { return effects.at(layer); });
  const std::vector<LayerGroup> groups{{{"a", "b", "c"}, ranks({Index{8}})}};
  const LayerSearchOptions options = grid(1 - 0.1201);  // just what the three lose if they add up
  LayerCallbacks callbacks = model.callbacks();
  callbacks.cost = nullptr;  // then the largest loss is undone
  EXPECT_THAT(search(model, options, groups).undone, IsEmpty());
  model.interaction = 0.02;
  const LayerSearchResult result = search(model, options, groups);
  EXPECT_THAT(result.undone, ElementsAre("b"));
  EXPECT_NEAR(result.model->quality[0], 1 - 0.09, 1e-12);
  EXPECT_THAT(search_layers(groups, callbacks, options).undone, ElementsAre("b"));
  model.interaction = 0.06;
  EXPECT_THAT(search(model, options, groups).undone, ElementsAre("b", "c"));
  EXPECT_THAT(search_layers(groups, callbacks, options).undone, ElementsAre("b", "a"));
  const auto none = search(model, grid(1 - 0.02), groups);
  EXPECT_FALSE(none.model);
  EXPECT_EQ(none.nearest->choices[0].layer, "c");
}

LayerCallbacks comparing_callbacks(Model& model) {
  LayerCallbacks callbacks = model.callbacks();
  callbacks.compare = [&model](std::span<const LayerChoice> choices) {
    EXPECT_EQ(model.replaced, std::vector<LayerChoice>(choices.begin(), choices.end()));
    model.replaced.clear();  // it may leave the unchanged model
    return model.comparison(choices);
  };
  return callbacks;
}

TEST(LayerSearch, the_comparison_in_turns_decides_whether_a_model_is_cheaper) {
  const test::TemporaryFolder folder;
  Model model([](const std::string& layer, const Point&) {
    return Effect{0.01, layer == "a" ? 0.2 : 0.01};
  });
  const std::vector<LayerGroup> groups{{{"a", "b"}, ranks({Index{8}})}};
  LayerSearchOptions options = grid(0.5);
  options.log = folder.path() / "log.json";
  const auto sure = search_layers(groups, comparing_callbacks(model), options);
  ASSERT_TRUE(sure.model);
  EXPECT_EQ(sure.model->choices.size(), 2u);
  EXPECT_TRUE(sure.model->cost.empty());
  EXPECT_EQ(model.costs, 3);  // the unchanged model and each layer; all together are compared
  EXPECT_NEAR(sure.model->comparison->ratio.ratio, 1 / 0.79, 1e-12);
  EXPECT_NEAR(to_json(sure)["model"]["comparison"]["low"].get<double>(), 1 / 0.79 - 0.01, 1e-12);

  // The log has the comparison; a damaged one is refused.
  model.calls = 0;
  EXPECT_EQ(to_json(search_layers(groups, comparing_callbacks(model), options)), to_json(sure));
  EXPECT_EQ(model.calls, 0);
  Json log = read_json_file(options.log);
  log["evaluations"].back()["comparison"]["low"] = -1;
  write_json_file(options.log, log);
  EXPECT_THAT(refusal([&] { search_layers(groups, comparing_callbacks(model), options); },
                      ErrorCategory::CorruptFile),
              HasSubstr("no valid 'low'"));
  log["evaluations"].back()["comparison"] = nullptr;
  write_json_file(options.log, log);
  EXPECT_THAT(refusal([&] { search_layers(groups, comparing_callbacks(model), options); },
                      ErrorCategory::CorruptFile),
              HasSubstr("are not those that this search takes"));

  // Each layer alone saves time, but the comparison of no model is above 1 as a whole.
  model.uncertainty = 0.3;
  options.log.clear();
  const auto unsure = search_layers(groups, comparing_callbacks(model), options);
  EXPECT_FALSE(unsure.model);
  EXPECT_THAT(unsure.undone, ElementsAre("b", "a"));  // b loses more for what it saves
  EXPECT_EQ(unsure.nearest->choices.size(), 2u) << "the cheapest of those within the limit";
  EXPECT_NEAR(unsure.nearest->comparison->ratio.low, 1 / 0.79 - 0.3, 1e-12);
  EXPECT_TRUE(search_layers(groups, model.callbacks(), options).model);

  LayerCallbacks broken = model.callbacks();
  broken.compare = [](std::span<const LayerChoice>) { return CostComparison{}; };
  EXPECT_THAT(refusal([&] { search_layers(groups, broken, options); }),
              HasSubstr("expected a finite cost above 0, got 0"));
}

using Progress = std::pair<Index, std::optional<Index>>;

std::vector<Progress> progress_of(Model& model, const LayerSearchOptions& options,
                                  std::span<const LayerGroup> groups) {
  std::vector<Progress> calls;
  LayerCallbacks callbacks = model.callbacks();
  callbacks.progress = [&calls](Index measured, std::optional<Index> planned) {
    calls.emplace_back(measured, planned);
  };
  search_layers(groups, callbacks, options);
  return calls;
}

TEST(LayerSearch, tells_how_many_models_are_left) {
  const test::TemporaryFolder folder;
  const std::vector<LayerGroup> groups{{{"a", "b"}, ranks()}, {{"c", "d"}, ranks(), false}};
  LayerSearchOptions options = grid(0);
  options.log = folder.path() / "log.json";
  Model model(typical);
  std::vector<Progress> expected;
  for (Index i = 1; i <= 10; ++i) expected.emplace_back(i, 10);  // 3 + 3 + 3, and all together
  EXPECT_EQ(progress_of(model, options, groups), expected);

  // With half of the log, the models in it count neither as measured nor as left.
  Json log = read_json_file(options.log);
  Json& evaluations = log["evaluations"];
  evaluations.erase(evaluations.begin() + 7, evaluations.end());  // the unchanged model, and 6
  write_json_file(options.log, log);
  EXPECT_EQ(progress_of(model, options, groups),
            (std::vector<Progress>{{1, 4}, {2, 4}, {3, 4}, {4, 4}}));
  EXPECT_THAT(progress_of(model, options, groups), IsEmpty());

  // Replacements that are undone take a model more each.
  Model lossy([](const std::string&, const Point&) { return Effect{0.04, 0.1}; });
  const std::vector<LayerGroup> three{{{"a", "b", "c"}, ranks({Index{8}})}};
  lossy.interaction = 0.06;
  EXPECT_EQ(progress_of(lossy, grid(1 - 0.1201), three),
            (std::vector<Progress>{{1, 4}, {2, 4}, {3, 4}, {4, 4}, {5, 5}, {6, 6}}));

  const auto unknown = progress_of(model, {.method = HyperbandMethod{.ratio = 3}}, groups);
  ASSERT_FALSE(unknown.empty());
  EXPECT_EQ(unknown.back(), Progress(std::ssize(unknown), std::nullopt));
}

TEST(LayerSearch, spends_the_quality_where_it_saves_most_time) {
  Model model([](const std::string& layer, const Point& point) {
    const double size = layer == "large" ? 4 : 1;  // saves more for the same loss
    return Effect{1.0 / static_cast<double>(rank_of(point)),
                  size * (0.1 - static_cast<double>(rank_of(point)) / 1000)};
  });
  const auto result = search(model, grid(1 - 5.0 / 64), {{{"small", "large"}, ranks()}});
  ASSERT_TRUE(result.model);
  ASSERT_EQ(result.model->choices.size(), 2u);
  EXPECT_EQ(rank_of(result.model->choices[0].point), 64);
  EXPECT_EQ(rank_of(result.model->choices[1].point), 16);  // 1/64 + 4/64
}

TEST(LayerSearch, the_returned_model_meets_the_threshold_as_a_whole) {
  int feasible = 0, undone = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Model model([seed](const std::string& layer, const Point& point) {
      PhiloxStream random(seed, static_cast<std::uint64_t>(layer[0]) * 1000 +
                                    static_cast<std::uint64_t>(rank_of(point)));
      return Effect{0.1 * random.uniform_double(), 0.2 * random.uniform_double() - 0.02};
    });
    model.interaction = 0.03;
    const std::vector<LayerGroup> groups{{{"a", "b", "c", "d"}, ranks()}};
    const double least = seed % 3 == 0 ? 0.999 : 0.9;
    const LayerSearchResult result = search(model, grid(least), groups);
    undone += !result.undone.empty();
    if (!result.model) {
      EXPECT_TRUE(result.nearest);
      continue;
    }
    ++feasible;
    EXPECT_GE(model.quality(result.model->choices), least);
    EXPECT_LT(model.cost(result.model->choices), 1);
  }
  EXPECT_GT(feasible, 20);  // both kinds occur
  EXPECT_LT(feasible, 50);
  EXPECT_GT(undone, 10);
}

TEST(LayerSearch, a_replacement_that_saves_no_time_is_not_made) {
  Model model([](const std::string& layer, const Point&) {
    return Effect{0.01, layer == "slow" ? -0.1 : 0.1};
  });
  const auto result = search(model, grid(0.5), {{{"slow", "fast"}, ranks()}});
  ASSERT_TRUE(result.model);
  ASSERT_EQ(result.model->choices.size(), 1u);
  EXPECT_EQ(result.model->choices[0].layer, "fast");
  const auto none = search(model, grid(0.5), {{{"slow"}, ranks()}});
  EXPECT_FALSE(none.model);
  EXPECT_EQ(none.nearest->choices[0].layer, "slow");
}

TEST(LayerSearch, the_mean_of_the_repeats_decides_not_the_best_run) {
  Model model(typical);
  LayerCallbacks callbacks = model.callbacks();
  // Rank 16 has the least single cost, 32 the least mean.
  callbacks.cost = [&model](Index repeat, double) {
    if (model.replaced.empty()) return 1.0;
    const Index rank = rank_of(model.replaced[0].point);
    return rank == 16 ? (repeat == 0 ? 0.05 : 0.5) : rank == 32 ? 0.1 : 0.4;
  };
  const std::vector<LayerGroup> groups{{{"a"}, ranks()}};
  LayerSearchOptions options = grid(0.5);
  options.repeats = 3;
  auto result = search_layers(groups, callbacks, options);
  ASSERT_TRUE(result.model);
  EXPECT_EQ(rank_of(result.model->choices[0].point), 32);
  // One run above the threshold does not make the mean feasible.
  model.noise = [](Index repeat) { return repeat == 0 ? 0.4 : -0.2; };
  options.least_quality = 0.985;
  EXPECT_FALSE(search_layers(groups, callbacks, options).model);
  options.least_quality = 0.98;
  result = search_layers(groups, callbacks, options);
  ASSERT_TRUE(result.model);
  const Json quality = to_json(result)["model"]["quality"];
  EXPECT_NEAR(quality["mean"].get<double>(), 1 - 1.0 / 64, 1e-12);
  EXPECT_NEAR(quality["standard_error"].get<double>(), 0.2, 1e-12);  // √(0.24 / 2 / 3)
}

TEST(LayerSearch, standard_error_needs_two_samples) {
  EXPECT_DOUBLE_EQ(*standard_error(std::vector<double>{1, 2, 3, 4}), std::sqrt(5.0 / 3 / 4));
  EXPECT_EQ(standard_error(std::vector<double>{1}), std::nullopt);
  EXPECT_EQ(standard_error({}), std::nullopt);
}

TEST(LayerSearch, every_layer_has_a_search_of_its_own) {
  const test::TemporaryFolder folder;
  // The best rank of one layer is the worst one of the other.
  Model model([](const std::string& layer, const Point& point) {
    const double x = static_cast<double>(rank_of(point)) / 64;
    return Effect{layer == "a" ? x : 1 - x, 0};
  });
  LayerSearchOptions options = grid({});
  options.log = folder.path() / "log.json";
  const auto result = search(model, options);
  EXPECT_EQ(rank_of(result.model->choices[0].point), 16);
  EXPECT_EQ(rank_of(result.model->choices[1].point), 64);
  std::vector<Json> expected{Json::object()};
  for (const char* layer : {"a", "b"}) {
    for (const Index rank : {16, 32, 64}) expected.push_back({{layer, {{"rank", rank}}}});
  }
  expected.push_back({{"a", {{"rank", 16}}}, {"b", {{"rank", 64}}}});
  EXPECT_EQ(evaluated(options.log), expected);

  options.log = folder.path() / "random.json";
  options.method = RandomMethod{6};
  search(model, options, {{{"a", "b"}, Space({{"rank", IntRange{1, 1000}}})}});
  const std::vector<Json> layers = evaluated(options.log);
  for (std::size_t i = 1; i <= 6; ++i) EXPECT_NE(layers[i]["a"], layers[i + 6]["b"]);
}

TEST(LayerSearch, layers_of_a_common_search_share_a_point) {
  Model model(typical);
  const auto result =
      search(model, grid(0.93),
             {{{"a", "b"}, ranks(), false, false}, {{"c"}, ranks({Index{50}}), true, true}});
  ASSERT_TRUE(result.model);
  // 64, 64 and 50 save 0.32 and lose 0.05; 32, 32 and none save 0.3.
  std::vector<LayerChoice> expected;
  for (const char* layer : {"a", "b"}) {
    expected.push_back({layer, ranks().point(2), false});
  }
  expected.push_back({"c", ranks({Index{50}}).point(0), true});
  EXPECT_EQ(result.model->choices, expected);
}

TEST(LayerSearch, starts_from_the_planned_ranks) {
  const test::TemporaryFolder folder;
  std::vector<LayerCurve> curves;
  for (const char* name : {"a", "b", "c"}) {
    curves.push_back({name, 1, {{16, 1, 4}, {30, 2, 1}, {64, 4, 0.1}, {0, 9, 0}}});
  }
  curves[2].sensitivity = 1e6;
  const auto plan = plan_ranks(curves, 2);
  ASSERT_TRUE(plan);
  ASSERT_THAT(plan->ranks, ElementsAre(30, 30, 0));
  const Space space({{"fit", Categorical{{std::string("svd"), std::string("random")}}},
                     {"rank", IntRange{16, 128, 16}},
                     {"scale", FloatRange{0.5, 2}}});
  Model model(typical);
  LayerSearchOptions options{.method = RandomMethod{2}, .log = folder.path() / "log.json"};
  const auto first_of = [&](bool separate, std::vector<Index> planned) {
    std::filesystem::remove(options.log);
    search(model, options, {{{"a", "b", "c"}, space, separate, true, std::move(planned)}});
    return evaluated(options.log);
  };
  const Json start{{"fit", "svd"}, {"rank", 32}, {"scale", 0.5}};
  const auto separate = first_of(true, plan->ranks);
  EXPECT_EQ(separate[1], Json({{"a", start}}));
  EXPECT_EQ(separate[3], Json({{"b", start}}));
  EXPECT_NE(separate[5]["c"]["scale"], 0.5);  // dense in the plan: a random point
  const auto common = first_of(false, {16, 70, 0});
  EXPECT_EQ(common[1]["b"]["rank"], 64);
  EXPECT_EQ(first_of(false, {1, 1, 1})[1]["a"]["rank"], 16);
  EXPECT_EQ(first_of(false, {999, 1, 1})[1]["a"]["rank"], 128);
}

// Kills the search at every call of a callback, each time going on from what the one before has
// left.
void expect_resumes(const Method& method) {
  const test::TemporaryFolder folder;
  const std::vector<LayerGroup> groups{{{"a", "b"}, ranks()},
                                       {{"c", "d"}, ranks(), false, true, {16, 32}}};
  LayerSearchOptions options{.method = method, .least_quality = 0.93, .repeats = 2, .seed = 5};
  options.log = folder.path() / "whole.json";
  Model whole(typical);
  const std::string result = to_json(search(whole, options, groups)).dump();
  const std::string log = read_text_file(options.log);
  ASSERT_THAT(result, HasSubstr("\"feasible\":true"));

  options.log = folder.path() / "killed.json";
  Index kills = 0;
  std::size_t logged = 0;
  for (Index call = 0;; ++call) {
    Model killed(typical);
    killed.killed_at = call;
    std::string resumed;
    try {
      resumed = to_json(search(killed, options, groups)).dump();
    } catch (const Killed&) {
      ++kills;
    }
    EXPECT_THAT(killed.replaced, IsEmpty());
    if (!resumed.empty()) {
      EXPECT_EQ(resumed, result);
      break;
    }
    const std::size_t now = evaluated(options.log).size();
    if (now != logged) call = -1;    // no call of the next evaluation was made before a kill
    EXPECT_LE(killed.qualities, 2);  // what is in the log is not measured again
    logged = now;
  }
  EXPECT_GE(kills, whole.calls);
  EXPECT_EQ(read_text_file(options.log), log);
  Model finished(typical);
  EXPECT_EQ(to_json(search(finished, options, groups)).dump(), result);
  EXPECT_EQ(finished.calls, 0);
}

TEST(LayerSearch, resumes_with_the_same_trials_wherever_it_was_killed) {
  expect_resumes(TpeMethod{.trials = 3, .initial = 2});
  expect_resumes(GridMethod{});
  expect_resumes(HyperbandMethod{.ratio = 3, .eta = 3});
}

TEST(LayerSearch, a_failed_model_is_infeasible_and_resumes_as_such) {
  const test::TemporaryFolder folder;
  Model model([](const std::string&, const Point& point) {
    return Effect{rank_of(point) == 16 ? std::nan("") : 0.01, 0.1};
  });
  LayerSearchOptions options = grid(0.9);
  options.log = folder.path() / "log.json";
  const auto result = search(model, options);
  ASSERT_TRUE(result.model);
  EXPECT_EQ(rank_of(result.model->choices[0].point), 32);
  EXPECT_TRUE(read_json_file(options.log)["evaluations"][1]["quality"][0].is_null());
  model.calls = 0;
  EXPECT_EQ(to_json(search(model, options)), to_json(result));
  EXPECT_EQ(model.calls, 0);

  Model broken([](const std::string&, const Point&) { return Effect{std::nan(""), 0.1}; });
  const auto none = search(broken, grid({}));
  EXPECT_FALSE(none.model);
  EXPECT_FALSE(none.nearest);
}

TEST(LayerSearch, refuses_a_replaced_layer_that_was_not_executed) {
  const test::TemporaryFolder folder;
  Model model(typical);
  model.dead_layer = "b";
  LayerSearchOptions options = grid(0.9);
  options.log = folder.path() / "log.json";
  EXPECT_EQ(refusal([&] { search(model, options); }),
            "[layer search] The replaced layer 'b' was not executed.");
  EXPECT_THAT(model.replaced, IsEmpty());
  EXPECT_EQ(evaluated(options.log).size(), 4u);  // the unchanged model and the ranks of a
}

TEST(LayerSearch, refuses_foreign_and_corrupt_logs) {
  const test::TemporaryFolder folder;
  Model model(typical);
  LayerSearchOptions options = grid(0.93);
  options.log = folder.path() / "log.json";
  search(model, options);
  const Json good = read_json_file(options.log);
  const auto refused = [&](const LayerSearchOptions& own,
                           std::vector<LayerGroup> groups = {{{"a", "b"}, ranks()}}) {
    model.calls = 0;
    const auto message = refusal([&] { search(model, own, groups); }, ErrorCategory::CorruptFile);
    EXPECT_EQ(model.calls, 0);
    return message;
  };
  const auto foreign = HasSubstr("The file is the log of another layer search.");
  LayerSearchOptions other = options;
  other.seed = 1;
  EXPECT_THAT(refused(other), foreign);
  other = options;
  other.repeats = 2;
  EXPECT_THAT(refused(other), foreign);
  other = options;
  other.least_quality = 0.9;
  EXPECT_THAT(refused(other), foreign);
  EXPECT_THAT(refused(options, {{{"a", "c"}, ranks()}}), foreign);
  EXPECT_THAT(refused(options, {{{"a", "b"}, ranks(), true, false}}), foreign);
  EXPECT_THAT(refused(options, {{{"a", "b"}, ranks(), false}}), foreign);
  EXPECT_THAT(refused(options, {{{"a", "b"}, ranks({Index{16}, Index{32}})}}), foreign);

  const auto refused_after = [&](const std::function<void(Json&)>& damage) {
    Json json = good;
    damage(json);
    write_json_file(options.log, json);
    return refused(options);
  };
  const auto would_not = HasSubstr(
      "This search would not have made evaluation 2; without the file, the search starts over.");
  EXPECT_THAT(refused_after([](Json& json) { json["evaluations"].erase(2); }), would_not);
  EXPECT_THAT(refused_after([](Json& json) { json["evaluations"][2]["resource"] = 0.5; }),
              would_not);
  EXPECT_THAT(refused_after([](Json& json) { json["evaluations"][2]["layers"] = 3; }), would_not);
  const auto samples =
      HasSubstr("The samples of evaluation 2 are not those that this search takes");
  EXPECT_THAT(refused_after([](Json& json) { json["evaluations"][2]["cost"].clear(); }), samples);
  EXPECT_THAT(refused_after([](Json& json) { json["evaluations"][2]["cost"][0] = nullptr; }),
              samples);
  EXPECT_THAT(refused_after([](Json& json) { json["evaluations"][2]["quality"].push_back(1); }),
              samples);
  EXPECT_THAT(refused_after([](Json& json) { json["evaluations"][2]["quality"][0] = "1"; }),
              HasSubstr("no number"));
  EXPECT_THAT(refused_after([](Json& json) { json["evaluations"][2]["quality"] = 1; }),
              HasSubstr("no list"));
  EXPECT_THAT(refused_after([](Json& json) { json["evaluations"][2] = "x"; }), HasSubstr("key"));
  EXPECT_THAT(refused_after([](Json& json) { json.erase("evaluations"); }),
              HasSubstr("not the log"));
  EXPECT_THAT(refused_after([](Json& json) { json = Json::array(); }), HasSubstr("not the log"));
  const std::string text = good.dump();
  write_text_file(options.log, text.substr(0, text.size() / 2));
  EXPECT_THAT(refused(options), HasSubstr("not valid JSON"));

  options.log = folder.path() / "absent" / "log.json";
  EXPECT_THAT(refusal([&] { search(model, options); }, ErrorCategory::Io), HasSubstr("absent"));
  EXPECT_EQ(model.calls, 0);  // found before anything is measured
}

TEST(LayerSearch, refuses_bad_groups_settings_and_measurements) {
  Model model(typical);
  const auto refused = [&](std::vector<LayerGroup> groups) {
    return refusal([&] { search(model, grid(0.9), std::move(groups)); });
  };
  EXPECT_THAT(refused({}), HasSubstr("no layers"));
  EXPECT_THAT(refused({{{}, ranks()}}), HasSubstr("no layers"));
  EXPECT_THAT(refused({{{"a"}, ranks()}, {{"b", "a"}, ranks()}}),
              HasSubstr("'a' is to be replaced twice"));
  EXPECT_THAT(refused({{{"a\n"}, ranks()}}), HasSubstr("printable"));
  EXPECT_THAT(refused({{{"a", "b"}, ranks(), true, true, {16}}}),
              HasSubstr("expected a planned rank for each of 2 layers, got 1"));
  const Space no_rank({{"rank", FloatRange{1, 2}}});
  EXPECT_THAT(refused({{{"a"}, no_rank, true, true, {16}}}), HasSubstr("no parameter 'rank'"));

  const std::vector<LayerGroup> groups{{{"a"}, ranks()}};
  LayerSearchOptions options = grid(0.9);
  options.repeats = 0;
  EXPECT_THAT(refusal([&] { search(model, options); }), HasSubstr("at least 1 repeat, got 0"));
  EXPECT_THAT(refusal([&] { search(model, grid(std::nan(""))); }),
              HasSubstr("finite least quality"));
  LayerCallbacks callbacks = model.callbacks();
  callbacks.was_executed = nullptr;
  EXPECT_THAT(refusal([&] { search_layers(groups, callbacks, grid(0.9)); }), HasSubstr("empty"));
  callbacks = model.callbacks();
  callbacks.cost = [](Index, double) { return 0.0; };
  EXPECT_THAT(refusal([&] { search_layers(groups, callbacks, grid(0.9)); }),
              HasSubstr("expected a finite cost above 0, got 0"));
  callbacks.quality = [](double, Index) { return std::nan(""); };
  EXPECT_THAT(refusal([&] { search_layers(groups, callbacks, grid({})); }),
              HasSubstr("The unchanged model has no finite quality."));
}

}  // namespace
}  // namespace hone::tune
