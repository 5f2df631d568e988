// SPDX-License-Identifier: Apache-2.0
#include "hone/train/surgery/layer_surgery.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/pooling.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hone/train/surgery/layer_select.h"
#include "tests/support/error_of.h"
#include "tests/train/surgery/small_net.h"

namespace hone::nn {
namespace {

using test::refusal;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using torch::Tensor;
using torch::nn::AnyModule;
using torch::nn::Linear;

AnyModule linear(std::int64_t in, std::int64_t out) { return AnyModule(Linear(in, out)); }

std::map<std::string, Tensor> copy_of(const torch::nn::Module& model) {
  std::map<std::string, Tensor> tensors;
  for (const auto& item : model.named_parameters()) {
    tensors[item.key()] = item.value().detach().clone();
  }
  return tensors;
}

bool is_same(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.equal(y.second);
  });
}

std::string refused(torch::nn::Module& model, const char* path, AnyModule replacement) {
  return refusal([&] { replace(model, path, std::move(replacement)); }, ErrorCategory::Unsupported);
}

struct PairImpl : torch::nn::Module {  // an embedding and a head that share a weight
  PairImpl() {
    embed = register_module("embed", Linear(torch::nn::LinearOptions(4, 6).bias(false)));
    head = register_module("head", Slot(Linear(torch::nn::LinearOptions(4, 6).bias(false))));
    head->layer().ptr<torch::nn::LinearImpl>()->weight.set_data(embed->weight);
  }
  Linear embed{nullptr};
  Slot head{nullptr};
};
TORCH_MODULE(Pair);

TEST(LayerSurgery, replaces_and_restores_to_the_bit) {
  at::manual_seed(1);
  SmallNet net;
  const Tensor x = at::randn({5, 8});
  const Tensor before = net->forward(x);
  const auto weights = copy_of(*net);
  const Snapshot taken = snapshot(*net);
  EXPECT_TRUE(is_same(copy_of(*net), weights));
  for (const char* path : {"layers.1.up", "head.norm"}) {
    const auto old = find_layer(*net, path).module;
    const Linear fresh(8, path[0] == 'h' ? 8 : 16);
    replace(*net, path, AnyModule(fresh));
    EXPECT_EQ(find_layer(*net, path).module, fresh.ptr());
    const Tensor replaced = net->forward(x);
    EXPECT_FALSE(replaced.equal(before));
    {
      const torch::NoGradGuard no_grad;
      fresh->weight.copy_(old->as<Linear>()->weight);
      fresh->bias.copy_(old->as<Linear>()->bias);
    }
    EXPECT_TRUE(net->forward(x).equal(before)) << path;  // everything else is as it was
    restore(taken);
    EXPECT_EQ(find_layer(*net, path).module, old);
  }
  EXPECT_TRUE(net->forward(x).equal(before));
  EXPECT_TRUE(is_same(copy_of(*net), weights));
}

TEST(LayerSurgery, a_replaced_layer_is_executed_and_counted) {
  SmallNet net;
  const Tensor x = at::randn({5, 8});
  net->forward(x);
  for (const char* path : {"layers.0.down", "head.out", "unused"}) {
    const std::string name(path);
    const Linear fresh(name == "layers.0.down" ? 16 : 8, name == "head.out" ? 3 : 8);
    replace(*net, path, AnyModule(fresh));
    EXPECT_FALSE(was_executed(*net, path));
    const Tensor before = net->forward(x);
    EXPECT_EQ(was_executed(*net, path), name != "unused");
    {
      const torch::NoGradGuard no_grad;
      fresh->weight.zero_();
    }
    EXPECT_EQ(net->forward(x).equal(before), name == "unused");
    EXPECT_EQ(calls_of(*net, path), name == "unused" ? 0 : 2);
  }
  EXPECT_THAT(refusal([&] { calls_of(*net, "head.norm"); }),
              HasSubstr("'head.norm' is in no Slot"));
  EXPECT_THAT(refusal([&] { calls_of(*net, "head.nrom"); }), HasSubstr("'head.norm'"));
}

TEST(LayerSurgery, a_member_that_would_keep_the_old_object_must_become_a_slot) {
  SmallNet net;
  const Tensor x = at::randn({5, 8});
  const Tensor before = net->forward(x);
  EXPECT_EQ(refused(*net, "layers.1.typed", linear(8, 8)),
            "[replace] Member 'typed' of 'layers.1' (Mlp) is called as a Linear. To be replaced, "
            "it must be a hone::nn::Slot.");
  EXPECT_THAT(refused(*net, "layers.0", AnyModule(Mlp())),
              HasSubstr("Member '0' of 'layers' (ModuleList) is called as a Mlp."));
  EXPECT_THAT(refused(*net, "head", linear(8, 3)),
              HasSubstr("Member 'head' of the model (SmallNet) is called as a Sequential."));
  torch::nn::ModuleDict dict;
  dict->update({{"a", Linear(2, 2).ptr()}, {"b", Slot(Linear(2, 2)).ptr()}});
  EXPECT_THAT(refused(*dict, "a", linear(2, 2)), HasSubstr("(ModuleDict) is called as a Linear"));
  replace(*dict, "b", AnyModule(torch::nn::Tanh()));
  EXPECT_TRUE((*dict)["b"]->as<Slot>()->forward(x).equal(x.tanh()));
  EXPECT_TRUE(net->forward(x).equal(before));
}

TEST(LayerSurgery, a_refusal_in_one_place_changes_no_other) {
  const Linear shared(8, 8);
  torch::nn::Sequential net(shared);
  Mlp mlp;
  mlp->typed = mlp->replace_module("typed", shared);
  net->push_back(mlp);
  EXPECT_THAT(refused(*net, "0", linear(8, 8)), HasSubstr("Member 'typed' of '1' (Mlp)"));
  EXPECT_EQ(net->ptr(0), shared.ptr());
}

TEST(LayerSurgery, a_shared_layer_stays_shared) {
  const Linear shared(4, 4);
  torch::nn::Sequential net(shared, torch::nn::Tanh(), shared, Slot(shared));
  const Linear fresh(4, 4);
  replace(*net, "2", AnyModule(fresh));
  for (const char* path : {"0", "2", "3"}) {
    EXPECT_EQ(find_layer(*net, path).module, fresh.ptr());
  }
  const Tensor x = at::randn({2, 4});
  const auto once = [&](const Tensor& in) { return at::linear(in, fresh->weight, fresh->bias); };
  EXPECT_TRUE(net->forward(x).equal(once(once(once(x).tanh()))));
  EXPECT_EQ(calls_of(*net, "0"), 3);  // of all places
}

TEST(LayerSurgery, tied_weights_are_reported_and_not_separated) {
  Pair pair;
  EXPECT_THAT(tied_parameters(*pair), ElementsAre(ElementsAre("embed.weight", "head.weight")));
  EXPECT_THAT(refused(*pair, "head", linear(4, 6)),
              HasSubstr("Parameter 'head.weight' is tied to 'embed.weight', and the replacement"));
  // A replacement that goes on using the shared weight leaves the tie.
  Linear other(torch::nn::LinearOptions(4, 6));
  other->weight.set_data(pair->embed->weight);
  replace(*pair, "head", AnyModule(other));
  EXPECT_THAT(tied_parameters(*pair), ElementsAre(ElementsAre("embed.weight", "head.weight")));

  // Parts of one allocation that do not overlap are not tied, nor is a layer in several places.
  const Tensor flat = at::zeros({48});
  pair->embed->weight.set_data(flat.slice(0, 0, 24).view({6, 4}));
  other->weight.set_data(flat.slice(0, 24).view({6, 4}));
  EXPECT_THAT(tied_parameters(*pair), IsEmpty());
  other->weight.set_data(flat.slice(0, 20, 44).view({6, 4}));
  EXPECT_EQ(tied_parameters(*pair).size(), 1u);
  const Linear shared(4, 4);
  torch::nn::Sequential net(shared, shared);
  EXPECT_THAT(tied_parameters(*net), IsEmpty());
}

TEST(LayerSurgery, keeps_the_training_mode) {
  SmallNet net;
  net->eval();
  replace(*net, "layers.0.up", linear(8, 16));
  replace(*net, "head.norm", linear(8, 8));
  for (const auto& module : net->modules()) EXPECT_FALSE(module->is_training());
  net->train();
  for (const auto& module : net->modules()) EXPECT_TRUE(module->is_training());
}

TEST(LayerSurgery, a_snapshot_brings_back_nested_replacements) {
  torch::nn::Sequential net(Slot(Mlp()), Linear(8, 8));
  const Tensor x = at::randn({3, 8});
  const Tensor before = net->forward(x);
  const Snapshot taken = snapshot(*net);
  replace(*net, "0.up", linear(8, 16));
  replace(*net, "0", linear(8, 8));
  replace(*net, "1", AnyModule(Mlp()));
  replace(*net, "1.down", linear(16, 8));
  EXPECT_FALSE(net->forward(x).equal(before));
  restore(taken);
  EXPECT_TRUE(net->forward(x).equal(before));
}

TEST(LayerSurgery, a_model_with_replacements_can_be_cloned) {
  SmallNet net;
  replace(*net, "layers.1.down", AnyModule(Mlp()));
  replace(*net, "layers.1.up", linear(8, 8));
  replace(*net, "head.norm", linear(8, 8));
  find_layer(*net, "unused").module->eval();
  const Tensor x = at::randn({3, 8});
  const auto copy = std::dynamic_pointer_cast<SmallNetImpl>(net->clone());
  EXPECT_TRUE(copy->forward(x).equal(net->forward(x)));
  EXPECT_EQ(type_of(*find_layer(*copy, "layers.1.down").module), "Mlp");
  EXPECT_FALSE(find_layer(*copy, "unused").module->is_training());
  EXPECT_TRUE(find_layer(*copy, "unused").slot->is_training());
  EXPECT_THAT(tied_parameters(*torch::nn::Sequential(AnyModule(net), AnyModule(copy))), IsEmpty());
  EXPECT_TRUE(net->named_parameters().contains("layers.0.up.layer.weight"));
}

TEST(LayerSurgery, trains_what_was_put_in) {
  SmallNet net;
  const Linear fresh(16, 8);
  replace(*net, "layers.0.down", AnyModule(fresh));
  net->forward(at::randn({3, 8})).sum().backward();
  EXPECT_TRUE(fresh->weight.grad().defined());
  net->to(torch::kDouble);
  EXPECT_EQ(fresh->weight.scalar_type(), torch::kDouble);
}

TEST(LayerSurgery, names_tensors_as_without_slots) {
  SmallNet net(1);
  std::vector<std::string> names;
  for (const NamedTensor& tensor : parameters_by_path(*net)) names.push_back(tensor.name);
  EXPECT_THAT(names,
              ElementsAre("layers.0.up.weight", "layers.0.up.bias", "layers.0.down.weight",
                          "layers.0.down.bias", "layers.0.typed.weight", "layers.0.typed.bias",
                          "head.norm.weight", "head.norm.bias", "head.out.weight", "head.out.bias",
                          "unused.weight", "unused.bias"));
  const Tensor weight =
      net->layers->at<MlpImpl>(0).down->layer().get<torch::nn::LinearImpl>().weight;
  EXPECT_TRUE(parameters_by_path(*net)[2].value.is_same(weight));
  torch::nn::Sequential norms(torch::nn::BatchNorm1d(4));
  replace(*norms, "0", AnyModule(torch::nn::BatchNorm1d(4)));
  names.clear();
  for (const NamedTensor& tensor : buffers_by_path(*norms)) names.push_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("0.running_mean", "0.running_var", "0.num_batches_tracked"));
}

struct TextLayerImpl : torch::nn::Module {
  Tensor forward(const std::string&) { return {}; }
};
TORCH_MODULE(TextLayer);
struct CountingLayerImpl : torch::nn::Module {
  Tensor forward(Tensor x) {
    ++calls;
    return x;
  }
  int calls = 0;
};
TORCH_MODULE(CountingLayer);

TEST(LayerSurgery, refuses_layers_that_take_anything_else_than_one_tensor) {
  SmallNet net;
  const auto before = copy_of(*net);
  for (const AnyModule& layer :
       {AnyModule(torch::nn::MultiheadAttention(16, 2)), AnyModule(torch::nn::Bilinear(16, 16, 8)),
        AnyModule(TextLayer())}) {
    EXPECT_THAT(refusal([&] { replace(*net, "layers.0.down", layer); }),
                HasSubstr("a layer whose forward() takes one tensor, got " + layer.ptr()->name()));
  }
  EXPECT_TRUE(is_same(copy_of(*net), before));
  CountingLayer counting;
  replace(*net, "layers.0.down", AnyModule(counting));
  EXPECT_EQ(counting->calls, 0) << "the layer has run";
  replace(*net, "layers.0.down", AnyModule(torch::nn::AdaptiveAvgPool1d(8)));
}

TEST(LayerSurgery, refuses_what_is_not_there) {
  SmallNet net;
  EXPECT_THAT(refusal([&] { replace(*net, "layers.0.don", linear(16, 8)); }),
              HasSubstr("no layer 'layers.0.don'. The nearest paths: 'layers.0.down', "));
  EXPECT_THAT(refusal([&] { replace(*net, "", linear(16, 8)); }), HasSubstr("no layer ''"));
  EXPECT_THAT(refusal([&] { replace(*net, "unused", AnyModule()); }), HasSubstr("no replacement"));
  EXPECT_THAT(refusal([&] { Slot slot{AnyModule()}; }), HasSubstr("no layer to hold"));
  const Snapshot taken = snapshot(*net);
  net->head->unregister_module("norm");
  EXPECT_THAT(refusal([&] { restore(taken); }), HasSubstr("Element 'norm' of a Sequential"));
}

}  // namespace
}  // namespace hone::nn
