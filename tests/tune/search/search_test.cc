// SPDX-License-Identifier: Apache-2.0
#include "hone/tune/search/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "hone/core/philox.h"
#include "tests/support/error_of.h"

namespace hone::tune {
namespace {

using test::refusal;
using namespace std::string_literals;

using Objective = std::function<Outcome(const Point&)>;

double number(const Point& point, std::string_view name) {
  const Value& value = point.at(name);
  if (const auto* whole = std::get_if<Index>(&value)) return static_cast<double>(*whole);
  return std::get<double>(value);
}

Space mixed_space() {
  return Space({{"kind", Categorical{{"a"s, "b"s, "c"s, "d"s}}},
                {"x", FloatRange{-1, 1, 0, false}},
                {"y", FloatRange{1e-4, 1, 0, true}},
                {"n", IntRange{1, 1000, 1, true}},
                {"m", IntRange{0, 60, 4, false}}});
}

// A smooth bowl with its minimum 0 at a point that the seed chooses.
Objective bowl(std::uint64_t seed) {
  PhiloxStream random(seed, 99);
  const double x = 2 * random.uniform_double() - 1, y = -4 * random.uniform_double(),
               n = 3 * random.uniform_double(), m = 60 * random.uniform_double();
  const std::string kind(1, static_cast<char>('a' + random.below(4)));
  return [=](const Point& point) {
    const double dx = number(point, "x") - x, dy = (std::log10(number(point, "y")) - y) / 4,
                 dn = (std::log10(number(point, "n")) - n) / 3, dm = (number(point, "m") - m) / 60;
    const double penalty = std::get<std::string>(point.at("kind")) == kind ? 0 : 0.3;
    return Outcome{true, {dx * dx + dy * dy + dn * dn + dm * dm + penalty}};
  };
}

void run(Search& search, const Objective& objective) {
  while (!search.finished()) {
    const Point point = *search.next();
    search.report(point, objective(point));
  }
}

double best_mean(const Search& search) {
  return mean_of(search.trials()[search.best().value()].outcome);
}

double best_of(const Method& method, std::uint64_t seed) {
  Search search(mixed_space(), Direction::Minimize, method, seed);
  run(search, bowl(seed));
  return best_mean(search);
}

std::set<std::string> texts_of(const Search& search) {
  std::set<std::string> texts;
  for (const Trial& trial : search.trials()) texts.insert(to_json(trial.point).dump());
  return texts;
}

Space small_space() {
  return Space({{"a", Categorical{{"p"s, "q"s, "r"s}}},
                {"b", IntRange{1, 64, 9, true}},
                {"c", FloatRange{0, 1, 0.5, false}}});  // 3 x 8 x 3 points
}

std::vector<Method> all_methods() {
  return {GridMethod{}, RandomMethod{}, TpeMethod{.trials = 40}, EvolutionMethod{},
          HyperbandMethod{.ratio = 9}};
}

// Smaller is better; a third of the points fail.
Outcome rough(const Point& point) {
  const double b = number(point, "b"), c = number(point, "c");
  const std::string& a = std::get<std::string>(point.at("a"));
  if (a == "q") return {};
  return {true, {std::abs(b - 20) + c, std::abs(b - 20) + 2 * c + (a == "p" ? 1 : 0)}};
}

TEST(GridSearch, exhausts_the_space_in_order) {
  const Space space = small_space();
  Search search(space, Direction::Minimize, GridMethod{});
  for (Index i = 0; i < 72; ++i) {
    ASSERT_EQ(search.next(), space.point(i));
    search.report(space.point(i), rough(space.point(i)));
  }
  EXPECT_TRUE(search.finished());
  EXPECT_FALSE(search.next());
  EXPECT_NE(refusal([&] { search.report(space.point(0), {true, {1}}); }), "");
  Search few(space, Direction::Minimize, GridMethod{.trials = 10});
  run(few, rough);
  EXPECT_EQ(few.trials().size(), 10u);
}

TEST(Search, plans_as_many_trials_as_it_makes_or_does_not_know) {
  const auto expect = [](const Space& space, const Method& method) {
    Search search(space, Direction::Minimize, method, 1);
    const auto planned = search.planned_trials();
    EXPECT_EQ(planned.has_value(), !std::holds_alternative<HyperbandMethod>(method));
    run(search, [](const Point&) { return Outcome{true, {1}}; });
    EXPECT_EQ(planned.value_or(std::ssize(search.trials())), std::ssize(search.trials()));
    EXPECT_EQ(search.planned_trials(), planned) << "at the end";
  };
  for (const Method& method : all_methods()) expect(small_space(), method);
  for (const Method& method :
       {Method(GridMethod{.trials = 10}), Method(GridMethod{.trials = 100}),
        Method(RandomMethod{.trials = 100}), Method(TpeMethod{.trials = 100}),
        Method(EvolutionMethod{.population = 10, .generations = 10})}) {
    expect(small_space(), method);
  }
  for (const Method& method :
       {Method(RandomMethod{}), Method(TpeMethod{.trials = 30}), Method(EvolutionMethod{})}) {
    expect(mixed_space(), method);
  }
}

TEST(GridSearch, refuses_an_interval) {
  const auto make = [] { Search(mixed_space(), Direction::Minimize, GridMethod{}); };
  EXPECT_NE(refusal(make).find("'x'"), std::string::npos);
}

TEST(Search, first_points_come_first_and_once) {
  const Space space = small_space();
  const std::vector<Point> first{space.point(40), space.point(3), space.point(40)};
  for (const Method& method : all_methods()) {
    Search search(space, Direction::Minimize, method, 1, first);
    EXPECT_EQ(search.next(), first[0]);
    search.report(first[0], {true, {1}});
    EXPECT_EQ(search.next(), first[1]);
    run(search, rough);
    const bool is_hyperband = std::holds_alternative<HyperbandMethod>(method);
    EXPECT_EQ(texts_of(search).size() == search.trials().size(), !is_hyperband);
  }
}

TEST(Search, no_method_repeats_a_point_and_each_one_exhausts_a_small_space) {
  const std::vector<Method> methods{RandomMethod{.trials = 1000}, TpeMethod{.trials = 1000},
                                    EvolutionMethod{.population = 10, .generations = 100}};
  for (const Method& method : methods) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      Search search(small_space(), Direction::Minimize, method, seed);
      run(search, rough);
      EXPECT_EQ(search.trials().size(), 72u);
      EXPECT_EQ(texts_of(search).size(), 72u);
    }
  }
  Search search(mixed_space(), Direction::Minimize, RandomMethod{.trials = 2000}, 5);
  run(search, bowl(5));
  EXPECT_EQ(texts_of(search).size(), 2000u);
}

TEST(RandomSearch, is_uniform_on_each_axis) {
  Search search(mixed_space(), Direction::Minimize, RandomMethod{.trials = 4000}, 3);
  run(search, bowl(3));
  std::map<std::string, int> kinds;
  double x = 0, y = 0, n = 0, m = 0;
  for (const Trial& trial : search.trials()) {
    ++kinds[std::get<std::string>(trial.point.at("kind"))];
    x += number(trial.point, "x") / 4000;
    y += std::log10(number(trial.point, "y")) / 4000;
    n += number(trial.point, "n") < 31.6 ? 1.0 / 4000 : 0;
    m += number(trial.point, "m") / 4000;
  }
  // Within 5 standard errors.
  for (const auto& [kind, count] : kinds) EXPECT_NEAR(count, 1000, 5 * std::sqrt(750.0)) << kind;
  EXPECT_NEAR(x, 0, 5 * 2 / std::sqrt(12 * 4000.0));
  EXPECT_NEAR(y, -2, 5 * 4 / std::sqrt(12 * 4000.0));
  // The axis is from log(1 / 1.5) to log(1000.5), and 31 ends at 31.5.
  const double share = std::log(31.5 * 1.5) / std::log(1000.5 * 1.5);
  EXPECT_NEAR(n, share, 5 * 0.5 / std::sqrt(4000.0));
  EXPECT_NEAR(m, 30, 5 * 64 / std::sqrt(12 * 4000.0));
}

// The probability of at least `wins` heads of 20.
double sign_test(int wins) {
  double p = 0, choose = 1;
  for (int k = 0; k <= 20; ++k) {
    if (k >= wins) p += choose * 0x1p-20;
    choose = choose * (20 - k) / (k + 1);
  }
  return p;
}

TEST(Search, tpe_beats_random_and_evolution_beats_its_median) {
  int wins = 0;
  std::vector<double> random, evolution;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    wins += best_of(TpeMethod{}, seed) < best_of(RandomMethod{.trials = 100}, seed) ? 1 : 0;
    random.push_back(best_of(RandomMethod{.trials = 50}, seed));
    evolution.push_back(best_of(EvolutionMethod{}, seed));
  }
  EXPECT_LT(sign_test(wins), 0.05) << wins << " of 20";
  std::ranges::sort(random);
  std::ranges::sort(evolution);
  EXPECT_LT(evolution[10], random[9]);
  RecordProperty("wins", wins);
}

TEST(Search, direction_is_a_mirror) {
  for (const Method& method : all_methods()) {
    Search down(small_space(), Direction::Minimize, method, 4);
    Search up(small_space(), Direction::Maximize, method, 4);
    while (!down.finished()) {
      const Point point = *down.next();
      ASSERT_EQ(up.next(), point);
      Outcome outcome = rough(point);
      down.report(point, outcome);
      for (double& sample : outcome.samples) sample = -sample;
      up.report(point, outcome);
    }
    EXPECT_TRUE(up.finished());
    EXPECT_EQ(up.best(), down.best());
  }
}

TEST(Search, resumes_with_the_same_trials_from_any_one) {
  for (const Method& method : all_methods()) {
    for (const Space& space : {small_space(), mixed_space()}) {
      if (std::holds_alternative<GridMethod>(method) && !space.count()) continue;
      const Objective objective = space.count() ? Objective(rough) : bowl(1);
      Search whole(space, Direction::Minimize, method, 8);
      run(whole, objective);
      Search search(space, Direction::Minimize, method, 8);
      for (std::size_t i = 0;; ++i) {
        // As from a file; the search was killed between next() and report().
        const auto pending = search.next();
        const Json saved = parse_json(search.save().dump(), "test");
        Search other(space, Direction::Minimize, method, 8);
        other.load(saved);
        ASSERT_EQ(other.next(), pending);
        ASSERT_EQ(other.resource(), search.resource());
        ASSERT_EQ(other.save(), saved);
        if (i % 10 == 0) {
          run(other, objective);
          ASSERT_EQ(other.save().dump(), whole.save().dump());
        }
        other.load(saved);  // back
        search = std::move(other);
        if (search.finished()) break;
        search.report(*pending, objective(*pending));
      }
      EXPECT_EQ(search.save().dump(), whole.save().dump());
    }
  }
}

TEST(Search, seeds_differ) {
  for (const Method& method : all_methods()) {
    if (std::holds_alternative<GridMethod>(method)) continue;
    Search one(mixed_space(), Direction::Minimize, method, 1);
    Search other(mixed_space(), Direction::Minimize, method, 2);
    EXPECT_NE(one.next(), other.next());
  }
}

TEST(Search, the_mean_decides_not_the_best_run) {
  const Space space({{"x", IntRange{0, 2, 1, false}}});
  Search search(space, Direction::Minimize, GridMethod{});
  search.report(space.point(0), {true, {10, 10, 1}});  // lucky once
  search.report(space.point(1), {true, {6, 5, 4}});
  search.report(space.point(2), {true, {9, 9, 9}});
  EXPECT_EQ(search.best(), 1u);
  EXPECT_EQ(search.trials()[0].outcome.samples, (std::vector<double>{10, 10, 1}));
  EXPECT_EQ(search.save()["trials"][0]["samples"], Json({10, 10, 1}));
}

TEST(Search, finds_the_only_feasible_point_or_none) {
  const Space space = small_space();
  const Point planted = space.point(50);
  for (const Method& method : {Method(GridMethod{}), Method(RandomMethod{.trials = 72}),
                               Method(TpeMethod{}), Method(EvolutionMethod{.population = 8})}) {
    Search search(space, Direction::Maximize, method, 2);
    run(search, [&](const Point& point) {
      return point == planted ? Outcome{true, {-5}} : Outcome{false, {100}};
    });
    ASSERT_TRUE(search.best());
    EXPECT_EQ(search.trials()[*search.best()].point, planted);
  }
  for (const Method& method : all_methods()) {
    Search search(space, Direction::Maximize, method, 2);
    run(search, [](const Point&) { return Outcome{false, {}}; });
    EXPECT_FALSE(search.best());
    EXPECT_FALSE(search.trials().empty());
  }
}

TEST(TpeSearch, avoids_what_fails) {
  // Half of the axis fails; the feasible half is flat, so that only the failures can tell.
  Search search(Space({{"x", FloatRange{0, 1, 0, false}}}), Direction::Minimize, TpeMethod{}, 7);
  run(search, [](const Point& point) {
    return number(point, "x") < 0.5 ? Outcome{} : Outcome{true, {1}};
  });
  int failed = 0;
  for (std::size_t i = 10; i < 100; ++i) failed += search.trials()[i].outcome.feasible ? 0 : 1;
  EXPECT_LT(failed, 27);  // of 90; chance is 45 with a deviation of 4.7
}

// Table 1 of the paper (1603.06560): n_i and r_i for R = 81 and eta = 3.
TEST(HyperbandSearch, has_the_brackets_of_the_paper) {
  const std::vector<std::pair<int, int>> table{{81, 1}, {27, 3}, {9, 9},  {3, 27},
                                               {1, 81},                             // s = 4
                                               {27, 3}, {9, 9},  {3, 27}, {1, 81},  // s = 3
                                               {9, 9},  {3, 27}, {1, 81},           // s = 2
                                               {6, 27}, {2, 81}, {5, 81}};  // s = 1 and s = 0
  Search search(mixed_space(), Direction::Minimize, HyperbandMethod{}, 6);
  std::set<std::string> seen;
  std::vector<Trial> before;
  for (std::size_t rung = 0; rung < table.size(); ++rung) {
    const auto [size, resource] = table[rung];
    const bool is_start = rung == 0 || resource <= table[rung - 1].second;
    std::vector<Trial> trials;
    for (int i = 0; i < size; ++i) {
      ASSERT_FALSE(search.finished());
      EXPECT_EQ(search.resource(), resource / 81.0);
      const Point point = *search.next();
      search.report(point, bowl(6)(point));
      trials.push_back(search.trials().back());
      EXPECT_EQ(seen.insert(to_json(point).dump()).second, is_start);
    }
    if (!is_start) {  // the best third, the best one first
      std::ranges::sort(before, {}, [](const Trial& trial) { return mean_of(trial.outcome); });
      for (std::size_t i = 0; i < trials.size(); ++i) EXPECT_EQ(trials[i].point, before[i].point);
    }
    before = trials;
  }
  EXPECT_TRUE(search.finished());
}

TEST(HyperbandSearch, only_full_evaluations_can_win_and_failures_stop) {
  Search search(small_space(), Direction::Maximize, HyperbandMethod{.ratio = 9}, 6);
  while (!search.finished()) {
    const double resource = search.resource();
    const bool feasible = resource < 1 || search.trials().size() % 2 == 0;
    search.report(*search.next(), {feasible, {1 / resource}});
  }
  ASSERT_TRUE(search.best());
  EXPECT_EQ(search.trials()[*search.best()].resource, 1);
  Search failing(small_space(), Direction::Maximize, HyperbandMethod{.ratio = 9}, 6);
  run(failing, [](const Point&) { return Outcome{}; });
  EXPECT_EQ(failing.trials().size(), 9u + 3 + 3);  // no rung but the first of each bracket
  EXPECT_EQ(texts_of(failing).size(), failing.trials().size());
}

TEST(HyperbandSearch, survives_a_space_smaller_than_a_bracket) {
  Search search(Space({{"x", IntRange{1, 5, 1, false}}}), Direction::Minimize, HyperbandMethod{});
  run(search, [](const Point& point) { return Outcome{true, {number(point, "x")}}; });
  EXPECT_EQ(texts_of(search).size(), 5u);
  EXPECT_EQ(number(search.trials()[search.best().value()].point, "x"), 1);
}

TEST(Search, refuses_bad_settings_and_outcomes) {
  for (const Method& method :
       {Method(GridMethod{.trials = 0}), Method(RandomMethod{.trials = 0}),
        Method(TpeMethod{.trials = 0}), Method(TpeMethod{.initial = 1}),
        Method(TpeMethod{.candidates = 0}), Method(TpeMethod{.gamma = 1}),
        Method(TpeMethod{.gamma = std::nan("")}), Method(EvolutionMethod{.population = 1}),
        Method(EvolutionMethod{.generations = 0}), Method(EvolutionMethod{.mutation = 1.5}),
        Method(EvolutionMethod{.crossover = std::nan("")}),
        Method(EvolutionMethod{.tournament = 0}), Method(EvolutionMethod{.elite = -1}),
        Method(HyperbandMethod{.ratio = 0}), Method(HyperbandMethod{.eta = 1})}) {
    EXPECT_NE(refusal([&] { Search(small_space(), Direction::Minimize, method); }), "");
  }
  const Point outside{{{"a", "z"s}, {"b", Index{1}}, {"c", 0.0}}};
  EXPECT_NE(refusal([&] {
              Search(small_space(), Direction::Minimize, RandomMethod{}, 0, {&outside, 1});
            }),
            "");
  Search search(small_space(), Direction::Minimize, GridMethod{});
  const Point point = *search.next();
  EXPECT_NE(refusal([&] { search.report(point, {true, {}}); }), "");
  EXPECT_NE(refusal([&] { search.report(point, {true, {1, std::nan("")}}); }), "");
  EXPECT_NE(refusal([&] { search.report(small_space().point(5), {true, {1}}); }), "");
  EXPECT_EQ(search.next(), point);
  search.report(point, {true, {std::numeric_limits<double>::max(), 1.7e308}});
  EXPECT_TRUE(std::isfinite(best_mean(search)));
}

TEST(Search, refuses_foreign_and_corrupt_files) {
  for (const Method& method : all_methods()) {
    Search search(small_space(), Direction::Minimize, method, 3);
    for (int i = 0; i < 6; ++i) search.report(*search.next(), rough(*search.next()));
    const Json good = search.save();
    const auto message = [&](Search& reader, const std::function<void(Json&)>& change) {
      Json json = good;
      change(json);
      const std::string before = reader.save().dump();
      const auto text = refusal([&] { reader.load(json); }, ErrorCategory::CorruptFile);
      EXPECT_EQ(reader.save().dump(), before);
      return text;
    };
    const auto expect = [&](const char* part, const std::function<void(Json&)>& change) {
      const std::string text = message(search, change);
      EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
    };
    const auto none = [](Json&) {};
    Search seed(small_space(), Direction::Minimize, method, 4);
    EXPECT_NE(message(seed, none).find("another seed"), std::string::npos);
    Search direction(small_space(), Direction::Maximize, method, 3);
    EXPECT_NE(message(direction, none).find("another direction"), std::string::npos);
    Search space(Space({{"a", Categorical{{"p"s, "q"s}}}}), Direction::Minimize, method, 3);
    EXPECT_NE(message(space, none).find("another space"), std::string::npos);
    Search rule(small_space(), Direction::Minimize, RandomMethod{.trials = 9}, 3);
    EXPECT_NE(message(rule, none).find("another method"), std::string::npos);

    expect("saved search", [](Json& json) { json = Json::array(); });
    expect("no format", [](Json& json) { json.erase("format"); });
    expect("another format", [](Json& json) { json["format"] = 3; });
    expect("list of trials", [](Json& json) { json.erase("trials"); });
    expect("list of trials", [](Json& json) { json["trials"] = 7; });
    expect("unknown", [](Json& json) { json["extra"] = 7; });
    expect("key", [](Json& json) { json["trials"][2].erase("samples"); });
    expect("key", [](Json& json) { json["trials"][2] = nullptr; });
    expect("outside", [](Json& json) { json["trials"][2]["point"]["b"] = 2; });
    expect("finite", [](Json& json) { json["trials"][2]["samples"] = {std::nan("")}; });
    expect("finite", [](Json& json) { json["trials"][2]["samples"] = {"1"}; });
    expect("outcome", [](Json& json) { json["trials"][2]["feasible"] = 1; });
    expect("no sample", [](Json& json) {
      json["trials"][2]["feasible"] = true;
      json["trials"][2]["samples"] = Json::array();
    });
    expect("not have proposed", [](Json& json) { json["trials"][2]["resource"] = 0.7; });
    expect("not have proposed",
           [](Json& json) { json["trials"][2]["point"] = json["trials"][1]["point"]; });
  }
}

}  // namespace
}  // namespace hone::tune
