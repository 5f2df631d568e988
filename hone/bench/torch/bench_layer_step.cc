// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/bench_layer_step.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/train/nn/llama.h"
#include "hone/train/optim/adam.h"
#include "hone/train/sketch/factored_linear.h"
#include "hone/train/surgery/layer_surgery.h"

namespace hone::bench {
namespace {

using torch::Tensor;

constexpr Index kMostSequences = 4096;
constexpr double kLearningRate = 1e-4, kStandardDeviation = 0.02;
constexpr Index kFloatBytes = sizeof(float);

struct StepModel {
  nn::Llama model;
  optim::AdamW optimizer;
  Index mlp_numbers = 0;  // of the products of the MLPs

  explicit StepModel(nn::Llama llama, Index numbers)
      : model(std::move(llama)),
        optimizer(model->parameters(), optim::AdamWOptions(kLearningRate)),
        mlp_numbers(numbers) {}

  void step(const Tensor& ids, const Tensor& targets) {
    (model->loss_sum(ids, targets) / static_cast<double>(ids.numel())).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
};

// The largest rank of at most half of the dense layer's numbers.
Index half_rank(Index inputs, Index outputs) { return inputs * outputs / 2 / (inputs + outputs); }

torch::nn::AnyModule low_rank_layer(Index inputs, Index outputs, nn::MatmulBackend matmul,
                                    at::Generator& random) {
  const Index rank = half_rank(inputs, outputs);
  const auto factor = [&](Index size) {
    return at::empty({rank, size}).normal_(0, kStandardDeviation, random);
  };
  const nn::FactoredLinearOptions options{.in_features = inputs,
                                          .out_features = outputs,
                                          .rank = rank,
                                          .mode = nn::FactorMode::LowRank,
                                          .bias = false,
                                          .matmul = matmul};
  return torch::nn::AnyModule(
      nn::FactoredLinear(options, nn::FactoredWeights{factor(inputs), factor(outputs), {}, {}}));
}

std::shared_ptr<StepModel> make_model(const model_io::Architecture& architecture, bool is_factored,
                                      std::uint64_t seed, nn::MatmulBackend matmul) {
  nn::Llama model(architecture, seed, matmul);
  auto random = at::make_generator<at::CPUGeneratorImpl>(seed);
  const Index hidden = architecture.hidden_size, inner = architecture.intermediate_size;
  Index numbers = 0;
  for (Index i = 0; i < architecture.layers; ++i) {
    for (const auto& [name, in, out] :
         {std::tuple("gate_up_proj", hidden, 2 * inner), std::tuple("down_proj", inner, hidden)}) {
      numbers += is_factored ? half_rank(in, out) * (in + out) : in * out;
      if (!is_factored) continue;
      nn::replace(*model, concat("layers.", i, ".mlp.", name),
                  low_rank_layer(in, out, matmul, random));
    }
  }
  return std::make_shared<StepModel>(std::move(model), numbers);
}

Index numbers_of(const nn::LlamaImpl& model) {
  Index numbers = 0;
  for (const Tensor& parameter : model.parameters()) numbers += parameter.numel();
  return numbers;
}

}  // namespace

void bench_layer_step(const model_io::Architecture& architecture, const BenchLayersOptions& options,
                      BenchRun& run) {
  const nn::MatmulBackend matmul = nn::parse_matmul_backend(options.matmul);
  const std::vector<Index> batches =
      options.batches.empty() ? std::vector<Index>{4} : options.batches;
  for (const Index batch : batches) {
    HONE_CHECK(batch >= 1 && batch <= kMostSequences, "bench layers",
               concat("a batch of 1 to ", kMostSequences, " sequences"), batch);
  }
  const auto dense = make_model(architecture, /*is_factored=*/false, options.seed, matmul);
  const auto factored = make_model(architecture, /*is_factored=*/true, options.seed, matmul);
  auto random = at::make_generator<at::CPUGeneratorImpl>(options.seed);
  for (const Index batch : batches) {
    const auto draw = [&] {
      return at::empty({batch, kStepPositions}, at::kLong)
          .random_(0, architecture.vocab_size, random);
    };
    const Tensor ids = draw(), targets = draw();
    BenchCase bench_case;
    bench_case.name = concat("step/b", batch, "x", kStepPositions);
    bench_case.tokens = static_cast<double>(ids.numel());
    for (const auto& [name, model] : {std::pair("dense", dense), std::pair("lowrank", factored)}) {
      bench_case.contestants.push_back(
          {.name = name, .run = [model = model, ids, targets] { model->step(ids, targets); }});
      bench_case.ours.push_back(model == factored);
      bench_case.extra.push_back({{"batch", batch},
                                  {"pass", "step"},
                                  {"parameters", numbers_of(*model->model)},
                                  {"mlp_bytes", kFloatBytes * model->mlp_numbers}});
    }
    bench_case.rivalries.push_back({1, {0}});
    run.add(bench_case);
  }
}

}  // namespace hone::bench
