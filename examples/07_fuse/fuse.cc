// SPDX-License-Identifier: Apache-2.0
// Fuses a model of one's own and a ResNet-20 for inference, and prints what each fusion gained.
//   fuse [RESNET20.safetensors]
#include <hone/measure/measure.h>
#include <hone/train/fuse/fuse.h>
#include <hone/train/nn/load_weights.h>
#include <hone/train/nn/residual.h>
#include <hone/train/nn/resnet.h>
#include <torch/torch.h>

#include <cstdio>
#include <exception>
#include <string>

namespace {

namespace nn = hone::nn;

// The layers that can be fused are elements of Sequentials.
struct NetImpl : torch::nn::Module {
  torch::nn::Sequential stem = register_module(
      "stem",
      torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 32, 3).padding(1)),
                            torch::nn::BatchNorm2d(32), torch::nn::ReLU()));
  torch::nn::Sequential head =
      register_module("head", torch::nn::Sequential(torch::nn::Linear(32, 256), torch::nn::GELU(),
                                                    torch::nn::Linear(256, 10)));

  torch::Tensor forward(const torch::Tensor& images) {
    return head->forward(stem->forward(images).mean({2, 3}));
  }
};
TORCH_MODULE(Net);

void print(const std::string& name, const nn::FusionReport& report) {
  std::printf("%s: %.2f times as fast [%.2f, %.2f], error %.1e; %zu sites, %ld applied. %s\n",
              name.c_str(), report.speedup.ratio, report.speedup.low, report.speedup.high,
              report.error, report.matches.size(),
              static_cast<long>(report.count(nn::FusionStatus::Applied)), report.verdict.c_str());
}

void print_sites(const nn::FusionReport& report) {
  for (const nn::FusionMatch& match : report.matches) {
    std::printf("  %-14s at %-22s %8.3f ms -> %8.3f ms  %s\n", match.pattern.c_str(),
                match.layers.front().c_str(), match.separate_ms, match.fused_ms,
                match.reason.c_str());
  }
}

void run(const char* weights) {
  torch::manual_seed(1);
  const auto measurer = hone::measure::make_measurer();
  const torch::NoGradGuard no_grad;

  Net net;
  net->eval();
  const nn::FusionReport own = nn::fuse(net, torch::randn({16, 3, 32, 32}), *measurer);
  print("A network of one's own", own);
  print_sites(own);

  for (const long batch : {1, 32}) {
    nn::ResNet resnet(
        nn::VisionSpec{.name = "resnet20", .channels = 3, .height = 32, .image_width = 32},
        /*seed=*/1);
    if (weights != nullptr) nn::load_weights(*resnet, weights, {.strict = true});
    resnet->eval();
    print("ResNet-20, batch " + std::to_string(batch),
          nn::fuse(resnet, torch::randn({batch, 3, 32, 32}), *measurer));
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? argv[1] : nullptr);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
