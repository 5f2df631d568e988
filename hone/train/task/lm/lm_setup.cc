// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/lm/lm_setup.h"

#include <array>
#include <string_view>
#include <utility>

#include "hone/train/device.h"
#include "hone/train/trainer/make_optimizer.h"

namespace hone::task {

LmSetup set_up_lm(const LmConfig& config) {
  const c10::Device device = trainer::device_of(config.trainer);
  select_device("trainer.device", device);
  LmData data = load_lm_data(config);
  model_io::Architecture architecture = make_architecture(config, data.tokenizer->vocab_size());
  architecture.bos_id = data.tokenizer->bos();
  architecture.stop_ids = {*data.tokenizer->eos()};
  nn::Llama model(architecture, static_cast<std::uint64_t>(config.trainer.seed),
                  nn::parse_matmul_backend(config.trainer.matmul));
  model->set_recompute_every(config.trainer.recompute_every);
  model->to(device);
  LmTask task(model, training_windows(config, data), data.held_out, config.trainer.micro_batch,
              config.trainer.accumulation_steps, config.data.validation_tokens);
  return {std::move(data), model, std::move(task)};
}

std::shared_ptr<optim::MultiTensorOptimizer> make_optimizer(const LmConfig& config,
                                                            const nn::LlamaImpl& model) {
  constexpr std::array<std::string_view, 1> kEmbeddings = {"embed_tokens"};
  return trainer::make_optimizer(optim::fill_defaults(config.optim, lm_rules()), peak_of(config),
                                 model, kEmbeddings);
}

}  // namespace hone::task
