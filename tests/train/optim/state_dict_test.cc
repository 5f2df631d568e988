// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/state_dict.h"
#include "hone/train/optim/rmsprop.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/json_io.h"
#include "hone/train/optim/adagrad.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/lion.h"
#include "hone/train/optim/muon.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/optim/tam.h"
#include "hone/train/tensor_file.h"
#include "tests/support/error_of.h"
#include "tests/support/peer.h"
#include "tests/support/tensors.h"
#include "tests/support/test_data.h"
#include "tests/train/optim/formula_values.h"

namespace hone::optim {
namespace {

using hone::test::TemporaryFolder;
using hone::test::Tensors;
using hone::test::worst_difference;
using testing::HasSubstr;
using Groups = std::vector<torch::optim::OptimizerParamGroup>;
using OptimizerPtr = std::shared_ptr<MultiTensorOptimizer>;

Tensors make_saved_params() {
  Tensors params{values(16, 16, 0), values(8, 40, 1), values(80, 64, 2)};
  for (torch::Tensor& param : params) param.requires_grad_();
  return params;
}

void take_steps(MultiTensorOptimizer& optimizer, int first, int steps) {
  for (int step = first; step < first + steps; ++step) {
    int k = 0;
    for (auto& group : optimizer.param_groups()) {
      for (torch::Tensor& param : group.params()) {
        param.mutable_grad() = values(param.size(0), param.size(1), 100 + 10 * step + k++);
      }
    }
    optimizer.step();
  }
}

// Two groups, the second with half the rate.
template <class Optimizer, class Options>
OptimizerPtr make(const Tensors& params, Options options) {
  Options half = options;
  half.set_lr(options.get_lr() / 2);
  Groups groups;
  groups.emplace_back(Tensors{params[0], params[1]}, std::make_unique<Options>(options));
  groups.emplace_back(Tensors{params[2]}, std::make_unique<Options>(half));
  return std::make_shared<Optimizer>(groups, options);
}

struct Rule {
  std::string name;
  std::function<OptimizerPtr(const Tensors&)> make_one;  // with options of its own
  std::function<OptimizerPtr(const Tensors&)> make_plain;
  double bound = 2e-6;  // of the distance from torch.optim
};

// Both iterate in bf16; what is left is the order of additions, as in muon_test.cc.
constexpr double kMuonBound = 2e-3;

Rule muon_rule() {
  return {"muon",
          [](const Tensors& p) {
            return make<Muon>(p, MuonOptions(0.1)
                                     .adjust_lr(MuonAdjust::MatchRmsAdamW)
                                     .nesterov(false)
                                     .bf16_iteration(true));
          },
          [](const Tensors& p) { return make<Muon>(p, MuonOptions(1).bf16_iteration(true)); },
          kMuonBound};
}

std::vector<Rule> torch_rules() {
  return {{"sgd",
           [](const Tensors& p) {
             return make<SGD>(p, SGDOptions(0.05).momentum(0.8).nesterov(true).weight_decay(0.01));
           },
           [](const Tensors& p) { return make<SGD>(p, SGDOptions(1)); }},
          {"adam",
           [](const Tensors& p) {
             return make<Adam>(p, AdamOptions(0.02).betas({0.8, 0.95}).weight_decay(0.1));
           },
           [](const Tensors& p) { return make<Adam>(p, AdamOptions(1)); }},
          {"adamw",
           [](const Tensors& p) {
             return make<AdamW>(p, AdamWOptions(0.02).amsgrad(true).weight_decay(0.3).eps(1e-6));
           },
           [](const Tensors& p) { return make<AdamW>(p, AdamWOptions(1)); }},
          {"adagrad",
           [](const Tensors& p) { return make<Adagrad>(p, AdagradOptions(0.1).lr_decay(0.05)); },
           [](const Tensors& p) { return make<Adagrad>(p, AdagradOptions(1)); }},
          {"rmsprop",
           [](const Tensors& p) {
             return make<RMSprop>(p, RMSpropOptions(0.01).momentum(0.9).centered(true).eps(1e-3));
           },
           [](const Tensors& p) { return make<RMSprop>(p, RMSpropOptions(1)); }},
          muon_rule()};
}

void write_params(const std::filesystem::path& folder, const Tensors& params) {
  std::vector<NamedTensor> named;
  for (std::size_t k = 0; k < params.size(); ++k) {
    named.push_back({std::to_string(k), params[k].detach()});
  }
  write_tensors(folder / "params.safetensors", named);
}

Tensors read_params(const std::filesystem::path& folder) {
  const MmapFile file(folder / "params.safetensors");
  Tensors params(3);
  for (NamedTensor& named : read_tensors(file)) {
    params[static_cast<std::size_t>(std::stoi(named.name))] = named.value.requires_grad_();
  }
  return params;
}

TEST(StateDict, moves_to_torch_optim_and_back) {
  HONE_REQUIRE_PEER("torch", "safetensors");
  for (const Rule& rule : torch_rules()) {
    const TemporaryFolder there, back;
    Tensors ours = make_saved_params();
    const OptimizerPtr optimizer = rule.make_one(ours);
    take_steps(*optimizer, 0, 4);
    save_state_dict(there.path(), *optimizer);
    write_params(there.path(), ours);
    hone::test::run_peer("tests/train/optim/peer_state_dict.py",
                         {rule.name, there.path().string(), back.path().string(), "4", "4"});
    take_steps(*optimizer, 4, 4);
    const Tensors theirs = read_params(back.path());
    EXPECT_LE(worst_difference(theirs, ours), rule.bound) << rule.name;
    // Back again, where neither rate nor anything else is known.
    const OptimizerPtr taken = rule.make_plain(theirs);
    load_state_dict(back.path(), *taken);
    take_steps(*taken, 8, 4);
    take_steps(*optimizer, 8, 4);
    EXPECT_LE(worst_difference(theirs, ours), rule.bound) << rule.name;
  }
}

// What torch.optim itself saves, tensor rates among it: as hone reads it, and stepped on in both.
TEST(StateDict, reads_groups_that_torch_optim_made) {
  HONE_REQUIRE_PEER("torch", "safetensors");
  const auto rate = static_cast<double>(0.02f);
  const std::vector<std::pair<std::string, Json>> cases = {
      {"adam", {{"lr", rate}, {"weight_decay", 0.1}}},
      {"adamw", {{"lr", rate}, {"weight_decay", 0.1}}},
      {"muon",
       {{"lr", rate},
        {"weight_decay", 0.25},
        {"momentum", 0.75},
        {"nesterov", false},
        {"ns_coefficients", {3.5, -4.75, 2.0}},
        {"eps", 1e-6},
        {"ns_steps", 4}}}};
  for (const auto& [name, wanted] : cases) {
    const std::vector<Rule> rules = torch_rules();
    const auto rule = std::find_if(rules.begin(), rules.end(),
                                   [&, n = name](const Rule& r) { return r.name == n; });
    const TemporaryFolder start, made, further;
    write_params(start.path(), make_saved_params());
    const auto run = [&](const TemporaryFolder& from, const TemporaryFolder& to,
                         const char* first) {
      hone::test::run_peer("tests/train/optim/peer_state_dict.py",
                           {rule->name, from.path().string(), to.path().string(), first, "4"});
    };
    run(start, made, "0");
    Tensors ours = read_params(made.path());
    const OptimizerPtr optimizer = rule->make_one(ours);
    load_state_dict(made.path(), *optimizer);
    const Json groups = optimizer->param_groups_json();
    for (const Json& group : groups) {
      for (const auto& [key, value] : wanted.items()) EXPECT_EQ(group.at(key), value) << name;
    }
    if (name == "muon") {
      EXPECT_EQ(groups[0].at("adjust_lr_fn"), "match_rms_adamw");
      EXPECT_EQ(groups[1].at("adjust_lr_fn"), "original") << "None";
    }
    take_steps(*optimizer, 4, 4);
    run(made, further, "4");
    EXPECT_LE(worst_difference(ours, read_params(further.path())), rule->bound) << name;
  }
}

std::vector<Rule> all_rules() {
  std::vector<Rule> rules = torch_rules();
  rules.push_back({"lion", [](const Tensors& p) { return make<Lion>(p, LionOptions(0.01)); },
                   [](const Tensors& p) { return make<Lion>(p, LionOptions(1)); }});
  rules.push_back({"tam",
                   [](const Tensors& p) { return make<TAM>(p, TAMOptions(0.01).momentum(0.7)); },
                   [](const Tensors& p) { return make<TAM>(p, TAMOptions(1)); }});
  rules.push_back({"adatamw",
                   [](const Tensors& p) {
                     return make<AdaTAMW>(p, AdaTAMWOptions(0.01)
                                                 .scope(TAMScope::Row)
                                                 .momentum_form(MomentumForm::Ema)
                                                 .fixed_damping(0.6));
                   },
                   [](const Tensors& p) { return make<AdaTAMW>(p, AdaTAMWOptions(1)); }});
  rules.push_back({"adamw, 8-bit",
                   [](const Tensors& p) {
                     return make<AdamW>(p, AdamWOptions(0.01).state_dtype(StateDtype::Block8));
                   },
                   [](const Tensors& p) {
                     return make<AdamW>(p, AdamWOptions(1).state_dtype(StateDtype::Block8));
                   }});
  return rules;
}

TEST(StateDict, keeps_momentum_that_is_switched_off_for_a_while) {
  Tensors params = make_saved_params(), copies = make_saved_params();
  SGD whole(params, SGDOptions(0.1).momentum(0.9)), loaded(copies, SGDOptions(0.1));
  const auto set_momentum = [](SGD& optimizer, double momentum) {
    static_cast<SGDOptions&>(optimizer.param_groups()[0].options()).momentum(momentum);
  };
  take_steps(whole, 0, 2);
  set_momentum(whole, 0);
  take_steps(whole, 2, 1);
  for (std::size_t k = 0; k < params.size(); ++k) copies[k].detach().copy_(params[k].detach());
  loaded.import_all(whole.param_groups_json(), whole.export_state());
  for (SGD* optimizer : {&whole, &loaded}) {
    set_momentum(*optimizer, 0.9);
    take_steps(*optimizer, 3, 2);
  }
  for (std::size_t k = 0; k < params.size(); ++k) EXPECT_TRUE(params[k].equal(copies[k])) << k;
}

TEST(StateDict, continues_every_rule_bit_for_bit) {
  for (const Rule& rule : all_rules()) {
    const TemporaryFolder folder;
    Tensors ours = make_saved_params();
    const OptimizerPtr optimizer = rule.make_one(ours);
    take_steps(*optimizer, 0, 4);
    save_state_dict(folder.path(), *optimizer);
    Tensors copies;
    for (const torch::Tensor& param : ours) {
      copies.push_back(param.detach().clone().requires_grad_());
    }
    const OptimizerPtr copy = rule.make_plain(copies);
    load_state_dict(folder.path(), *copy);
    take_steps(*copy, 4, 4);
    take_steps(*optimizer, 4, 4);
    for (std::size_t k = 0; k < ours.size(); ++k) {
      EXPECT_TRUE(at::equal(copies[k].detach(), ours[k].detach())) << rule.name << k;
    }
  }
}

TEST(StateDict, names_options_as_python_does) {
  const TemporaryFolder folder;
  const OptimizerPtr optimizer = torch_rules()[2].make_one(make_saved_params());
  save_state_dict(folder.path(), *optimizer);
  const Json groups = read_json_file(folder.path() / "optimizer.json").at("param_groups");
  EXPECT_EQ(groups[0].at("lr"), 0.02);
  EXPECT_EQ(groups[1].at("lr"), 0.01);
  EXPECT_EQ(groups[0].at("betas"), Json::array({0.9, 0.999}));
  EXPECT_EQ(groups[0].at("amsgrad"), true);
  EXPECT_EQ(groups[1].at("params"), Json::array({2}));
  EXPECT_EQ(groups[1].at("state_dtype"), "fp32");
}

std::string error_of_group(MultiTensorOptimizer& optimizer, const Json& changed) {
  Json groups = optimizer.param_groups_json();
  for (Json& group : groups) group.update(changed);
  return hone::test::error_of([&] { optimizer.import_all(groups, {}); });
}

TEST(StateDict, names_muons_factor_as_torch_optim_does_and_reads_the_earlier_name) {
  const OptimizerPtr muon = muon_rule().make_one(make_saved_params());
  const auto factor = [&] { return muon->param_groups_json()[0].at("adjust_lr_fn"); };
  EXPECT_EQ(factor(), "match_rms_adamw");
  EXPECT_FALSE(muon->param_groups_json()[0].contains("adjust_lr"));
  EXPECT_EQ(error_of_group(*muon, {{"adjust_lr_fn", nullptr}}), "no error");  // Python's None
  EXPECT_EQ(factor(), "original");
  Json earlier = muon->param_groups_json();
  for (Json& group : earlier) {
    group.erase("adjust_lr_fn");
    group["adjust_lr"] = "match_rms_adamw";
  }
  muon->import_all(earlier, {});
  EXPECT_EQ(factor(), "match_rms_adamw");
  EXPECT_THAT(error_of_group(*muon, {{"adjust_lr_fn", "spectral"}}),
              HasSubstr("adjust_lr_fn] expected original or match_rms_adamw, got \"spectral\""));
  EXPECT_EQ(factor(), "match_rms_adamw");
}

TEST(StateDict, reads_archives_with_the_earlier_name_of_muons_factor) {
  const MuonOptions options = MuonOptions(0.3).adjust_lr(MuonAdjust::MatchRmsAdamW);
  for (const bool earlier : {false, true}) {
    torch::serialize::OutputArchive out;
    MuonOptions::visit_fields(options, [&](const std::string& key, const auto& field) {
      FieldWriter{out}(earlier && key == "adjust_lr_fn" ? "adjust_lr" : key.c_str(), field);
    });
    std::stringstream stream;
    out.save_to(stream);
    torch::serialize::InputArchive in;
    in.load_from(stream);
    MuonOptions loaded;
    loaded.serialize(in);
    EXPECT_EQ(loaded.adjust_lr(), MuonAdjust::MatchRmsAdamW) << earlier;
    EXPECT_EQ(loaded.lr(), 0.3) << earlier;
  }
}

// torch.optim.AdamW saves decoupled_weight_decay = true, torch.optim.Adam what it was given.
TEST(StateDict, refuses_the_other_kind_of_weight_decay_unless_there_is_none) {
  const auto groups_of = [](bool decoupled, double decay) -> Json {
    return {{"decoupled_weight_decay", decoupled}, {"weight_decay", decay}};
  };
  Tensors params = make_saved_params();
  Adam adam(params, AdamOptions(0.1));
  AdamW adamw(params, AdamWOptions(0.1));
  SGD sgd(params, SGDOptions(0.1));
  AdaTAMW adatamw(params, AdaTAMWOptions(0.1));
  EXPECT_THAT(error_of_group(adam, groups_of(true, 0.5)),
              testing::AllOf(HasSubstr("decoupled_weight_decay = true"),
                             HasSubstr("hone::optim::AdamW does")));
  EXPECT_THAT(error_of_group(adamw, groups_of(false, 0.5)),
              testing::AllOf(HasSubstr("decoupled_weight_decay = false"),
                             HasSubstr("hone::optim::Adam does")));
  EXPECT_THAT(error_of_group(sgd, groups_of(true, 0.5)),
              HasSubstr("is not what hone::optim::SGD computes."));
  EXPECT_THAT(error_of_group(adatamw, groups_of(false, 0.5)), HasSubstr("AdaTAM does"));
  EXPECT_EQ(adam.param_groups_json()[0].at("weight_decay"), 0) << "nothing has changed";
  for (MultiTensorOptimizer* optimizer :
       std::initializer_list<MultiTensorOptimizer*>{&adam, &adamw, &sgd, &adatamw}) {
    const bool own = optimizer->param_groups_json()[0].at("decoupled_weight_decay").get<bool>();
    EXPECT_EQ(error_of_group(*optimizer, groups_of(own, 0.5)), "no error");
    EXPECT_EQ(error_of_group(*optimizer, groups_of(!own, 0)), "no error");
    EXPECT_EQ(optimizer->param_groups_json()[0].at("decoupled_weight_decay"), own);
    EXPECT_THAT(error_of_group(*optimizer, {{"decoupled_weight_decay", "yes"}}),
                HasSubstr("true or false"));
  }
}

struct Damage {
  const char* what;
  std::function<void(Json&)> apply;
};

TEST(StateDict, refuses_what_does_not_fit_and_changes_nothing) {
  const std::vector<Damage> damages = {
      {"2 param_groups", [](Json& groups) { groups.erase(1); }},
      {"1 parameters",
       [](Json& groups) {
         groups[1]["params"] = Json::array({2, 3});
       }},
      {"param_groups[1].lr] expected a number, got \"tensor(0.0010)\"",
       [](Json& groups) { groups[1]["lr"] = "tensor(0.0010)"; }},
      {"param_groups[0].betas", [](Json& groups) { groups[0]["betas"] = Json::array({0.9}); }},
      {"fp32 or bf16 or 8bit", [](Json& groups) { groups[0]["state_dtype"] = "fp64"; }}};
  const TemporaryFolder folder;
  const OptimizerPtr optimizer = torch_rules()[2].make_one(make_saved_params());
  take_steps(*optimizer, 0, 2);
  save_state_dict(folder.path(), *optimizer);
  const Json good = read_json_file(folder.path() / "optimizer.json");
  const Json before = optimizer->param_groups_json();
  for (const Damage& damage : damages) {
    Json bad = good;
    damage.apply(bad["param_groups"]);
    write_json_file(folder.path() / "optimizer.json", bad);
    try {
      load_state_dict(folder.path(), *optimizer);
      ADD_FAILURE() << "took it: " << damage.what;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(damage.what));
    }
    EXPECT_EQ(optimizer->param_groups_json(), before) << damage.what;
  }
  write_json_file(folder.path() / "optimizer.json", good);
  const std::string bytes = read_text_file(folder.path() / "optimizer.safetensors");
  write_text_file(folder.path() / "optimizer.safetensors", bytes.substr(0, bytes.size() / 2));
  EXPECT_THROW(load_state_dict(folder.path(), *optimizer), Error);
  EXPECT_THROW(load_state_dict(folder.path() / "none", *optimizer), Error);
  EXPECT_EQ(optimizer->export_state().front().value.item<std::int64_t>(), 2);
}

}  // namespace
}  // namespace hone::optim
