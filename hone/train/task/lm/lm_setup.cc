// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/lm/lm_setup.h"

#include <array>
#include <string_view>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/train/device.h"
#include "hone/train/nn/load_llama.h"
#include "hone/train/optim/rule_table.h"
#include "hone/train/task/lm/factored_model.h"
#include "hone/train/trainer/make_optimizer.h"

namespace hone::task {

namespace {

model_io::Architecture architecture_for(const LmConfig& config, const text::Tokenizer& tokenizer,
                                        const InitialModel* initial) {
  if (initial != nullptr) {
    model_io::Architecture out = initial->architecture;
    out.context = config.model.context;
    return out;
  }
  model_io::Architecture out = make_architecture(config, tokenizer.vocab_size());
  out.bos_id = tokenizer.bos();
  if (tokenizer.eos()) out.stop_ids = {*tokenizer.eos()};
  return out;
}

}  // namespace

LmPlan plan_lm(const LmConfig& config, const InitialModel* initial, const LmTeacher* teacher) {
  LmData data = load_lm_data(config, initial != nullptr   ? initial->tokenizer
                                     : teacher != nullptr ? teacher->tokenizer
                                                          : nullptr);
  model_io::Architecture architecture = architecture_for(config, *data.tokenizer, initial);
  TokenWindows windows = training_windows(config, data);
  return {std::move(data), std::move(architecture), std::move(windows)};
}

LmSetup set_up_lm(const LmConfig& config, const InitialModel* initial, const LmTeacher* teacher) {
  return set_up_lm(config, plan_lm(config, initial, teacher), initial, teacher);
}

LmSetup set_up_lm(const LmConfig& config, LmPlan plan, const InitialModel* initial,
                  const LmTeacher* teacher) {
  const c10::Device device = trainer::device_of(config.trainer);
  select_device("trainer.device", device);
  nn::Llama model = make_llama(plan.architecture, static_cast<std::uint64_t>(config.trainer.seed),
                               nn::parse_matmul_backend(config.trainer.matmul));
  if (initial != nullptr && initial->file != nullptr) {
    const Index tensors = nn::load_llama(*model, *initial->file);
    log_info(concat("model.init: ", tensors, " tensors of ", initial->path.string(), " loaded"));
  }
  model->set_recompute_every(config.trainer.recompute_every);
  model->to(device);
  LmTask task(model, std::move(plan.windows), plan.data.held_out, config.trainer.micro_batch,
              config.trainer.accumulation_steps, config.data.validation_tokens);
  if (teacher != nullptr) {
    task.learn_from(teacher->model,
                    {.temperature = config.distill.temperature, .alpha = config.distill.alpha});
  }
  return {std::move(plan.data), model, std::move(task)};
}

std::shared_ptr<optim::MultiTensorOptimizer> make_optimizer(const LmConfig& config,
                                                            const nn::LlamaImpl& model) {
  constexpr std::array<std::string_view, 2> kEnds = {"embed_tokens", "lm_head"};
  // State in 8 bits spares the embeddings alone.
  const bool both = optim::find_entry(config.optim.name).separates_embeddings;
  return trainer::make_optimizer(optim::fill_defaults(config.optim, lm_rules()), peak_of(config),
                                 model, std::span(kEnds).first(both ? 2 : 1));
}

}  // namespace hone::task
