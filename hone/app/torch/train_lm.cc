// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/train_lm.h"

#include <vector>

#include "hone/app/torch/train_run.h"
#include "hone/core/check.h"
#include "hone/core/trace.h"
#include "hone/model_io/write_model.h"
#include "hone/train/memory/device_memory.h"
#include "hone/train/nn/llama.h"
#include "hone/train/optim/averaged_weights.h"
#include "hone/train/task/lm/lm_setup.h"
#include "hone/train/trainer/make_optimizer.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;

void export_model(const fs::path& folder, const nn::Llama& model, const task::LmData& data) {
  HONE_TRACE_ZONE("export model");
  std::vector<model_io::NamedMatrix> tensors;
  std::vector<NamedTensor> on_host = model->hugging_face_tensors();  // until they are written
  for (NamedTensor& named : on_host) {
    named.value = named.value.to(at::kCPU);
    HONE_CHECK(named.value.is_contiguous(), "export", "contiguous weights", named.name);
    const bool is_vector = named.value.dim() == 1;
    StoredMatrix matrix;
    matrix.rows = is_vector ? 1 : named.value.size(0);
    matrix.cols = named.value.size(-1);
    matrix.bytes = {static_cast<const std::byte*>(named.value.data_ptr()), named.value.nbytes()};
    tensors.push_back({named.name, matrix, is_vector});
  }
  model_io::write_hugging_face(folder, {.architecture = model->architecture(),
                                        .tensors = tensors,
                                        .tokenizer = data.tokenizer.get()});
}

TrainLmResult run_job(const TrainLmJob& job) {
  task::LmConfig config = job.config;
  check_config(config);
  const TrainRun run(options_of(job), config.trainer);
  task::LmSetup setup = task::set_up_lm(config);
  run.fix(config.trainer, setup.task);
  config.optim = trainer::apply_preset(config.optim, config.given, *setup.model);
  const auto optimizer = task::make_optimizer(config, *setup.model);
  const trainer::TrainResult trained = run.train(
      facts_of(config), config.lr, config.trainer,
      {.name = setup.data.name, .hash = setup.data.hash, .kind = "text"}, setup.task, *optimizer);
  const fs::path folder = job.out / "model";
  const optim::AveragedWeights averaged(*optimizer);
  export_model(folder, setup.model, setup.data);
  return {.steps = trained.steps,
          .skipped_steps = trained.skipped_steps,
          .parameters = setup.model->architecture().parameters(),
          .train_loss = trained.train_loss,
          .tokens_per_s = trained.tokens_per_s,
          .val_loss = trained.validation.loss,
          .val_bits_per_byte = trained.validation.bits_per_byte,
          .loop_share = trained.loop_share,
          .seconds = run.seconds(),
          .out = job.out,
          .model = folder};
}

}  // namespace

TrainLmResult train_lm(const TrainLmJob& job) {
  return memory::run_in_memory("train lm", [&] { return run_job(job); });
}

Json to_json(const TrainLmResult& result) {
  return {{"steps", result.steps},
          {"skipped_steps", result.skipped_steps},
          {"train_loss", to_json(result.train_loss)},
          {"val_loss", result.val_loss},
          {"val_bits_per_byte", result.val_bits_per_byte},
          {"tokens_per_s", to_json(result.tokens_per_s)},
          {"loop_share", result.loop_share},
          {"seconds", result.seconds},
          {"parameters", result.parameters},
          {"out", result.out.string()},
          {"model", result.model.string()}};
}

}  // namespace hone::app
