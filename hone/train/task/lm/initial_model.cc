// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/lm/initial_model.h"

#include <string>
#include <system_error>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/model_io/family/family.h"
#include "hone/model_io/hf_config.h"
#include "hone/model_io/metadata/hf_metadata.h"
#include "hone/model_io/tokenizer_file.h"
#include "hone/model_io/write_plan.h"
#include "hone/text/format/tokenizer_json.h"
#include "hone/train/nn/llama.h"

namespace hone::task {
namespace {

namespace fs = std::filesystem;

constexpr const char *kConfig = "config.json", *kGeneration = "generation_config.json";

fs::path model_of(const fs::path& init) {
  std::error_code ignored;
  const bool is_run =
      !fs::exists(init / kConfig, ignored) && fs::exists(init / "model" / kConfig, ignored);
  return is_run ? init / "model" : init;
}

// What the trained model's config.json can say, and how its folder stores weights.
model_io::Architecture as_in_folder(model_io::Architecture a, const std::string& where) {
  a.rope.pairing = model_io::RopePairing::HalfSplit;
  if (a.window_rope) a.window_rope->pairing = a.rope.pairing;
  a.norm_offset =
      model_io::norm_offset_in(model_io::family_of(a), model_io::FileFormat::HuggingFace);
  nn::check_trainable(a, where);
  if (!a.rope.frequency_divisors.empty()) {
    fail_unsupported(where,
                     "RoPE that the config.json of the trained model can express (default, linear, "
                     "llama3 or yarn)",
                     "a table of divisors (rope_freqs.weight)");
  }
  return a;
}

}  // namespace

InitialModel open_initial_model(const fs::path& init) {
  InitialModel out;
  out.path = model_of(init);
  out.file = model_io::open_model_or_throw(out.path);
  out.architecture = as_in_folder(out.file->architecture(), out.path.string());
  out.tokenizer = out.file->tokenizer();
  text::to_tokenizer_json(out.tokenizer->vocabulary());  // refuses now what it would at the end
  out.generation_defaults = out.file->generation_defaults();
  out.metadata = out.file->metadata();
  if (!out.architecture.bos_id) out.architecture.bos_id = out.tokenizer->bos();
  if (out.architecture.stop_ids.empty() && out.tokenizer->eos()) {
    out.architecture.stop_ids = {*out.tokenizer->eos()};
  }
  return out;
}

void write_initial_model(const fs::path& path, const InitialModel& model) {
  AtomicFolder folder(path, model_io::check_model_folder);
  model_io::write_hugging_face_texts(folder.staging(),
                                     {.architecture = model.architecture,
                                      .tensors = {},
                                      .tokenizer = model.tokenizer.get(),
                                      .generation_defaults = model.generation_defaults,
                                      .metadata = model.metadata},
                                     model_io::write_hf_config(model.architecture, "float32"));
  folder.commit();
}

InitialModel read_initial_model(const fs::path& folder) {
  InitialModel out;
  out.path = folder;
  out.generation_defaults = read_json_file(folder / kGeneration);
  const fs::path config = folder / kConfig;
  const Json json = read_json_file(config);
  out.architecture = model_io::read_hf_config(json, out.generation_defaults, config.string());
  out.metadata = model_io::read_hf_metadata(folder, json);
  model_io::validate(out.architecture, config.string());
  out.tokenizer = model_io::find_tokenizer(folder);
  if (out.tokenizer == nullptr) fail_corrupt(folder.string(), "This folder has no tokenizer.");
  return out;
}

std::optional<InitialModel> take_initial_model(LmConfig& config, const fs::path& kept) {
  if (config.model.init.empty()) return std::nullopt;
  std::error_code ignored;
  InitialModel model = !kept.empty() && fs::exists(kept, ignored)
                           ? read_initial_model(kept)
                           : open_initial_model(config.model.init);
  config = with_architecture(std::move(config), model.architecture);
  return model;
}

}  // namespace hone::task
