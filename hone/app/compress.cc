// SPDX-License-Identifier: Apache-2.0
#include "hone/app/compress.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "hone/app/blame_weights.h"
#include "hone/app/calibration.h"
#include "hone/app/eval_lm.h"
#include "hone/compress/allocate/allocate.h"
#include "hone/compress/compress.h"
#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/file/sha256.h"
#include "hone/core/machine/trace.h"
#include "hone/core/names.h"
#include "hone/core/progress.h"
#include "hone/core/text_format.h"
#include "hone/core/version.h"
#include "hone/data/text_source.h"
#include "hone/model_io/factored_config.h"
#include "hone/model_io/write_model.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;

// Enough held-out stories for the default 20,000 tokens of the card.
constexpr Index kCardStories = 300;

// The hashes of the original's files by name; `weights` are the files of a model without a folder.
Json hash_of(const fs::path& model, const std::vector<fs::path>& weights) {
  HONE_TRACE_ZONE("hash original");
  std::map<std::string, fs::path> files;
  if (fs::is_directory(model)) {
    for (const auto& entry : fs::directory_iterator(model)) {
      if (entry.is_regular_file()) files[entry.path().filename().string()] = entry.path();
    }
  } else {
    for (const fs::path& file : weights) files[file.filename().string()] = file;
  }
  Index total = 0, done = 0;
  for (const auto& [name, path] : files) total += static_cast<Index>(fs::file_size(path));
  Progress progress("hashing the original", total >> 20, "MiB");
  Json hashes = Json::object();
  for (const auto& [name, path] : files) {
    hashes[name] = sha256_hex(path, [&](Index bytes) { progress.update((done += bytes) >> 20); });
  }
  return hashes;
}

std::vector<std::string> held_out_documents(const CompressJob& job) {
  const fs::path path = job.data.empty() ? fs::path(job.recipe.eval_data) : job.data;
  if (path.empty()) {
    return data::generate_story_corpus(data::StoryGrammar(), 0,
                                       {.train = 0, .held_out = kCardStories})
        .held_out;
  }
  std::vector<std::string> documents = data::load_text(path).held_out;
  if (documents.empty()) {
    fail_corrupt(path.string(), "The text is too short: its last tenth is empty.");
  }
  return documents;
}

bool is_gguf(const fs::path& out) { return out.extension() == ".gguf"; }

// A GGUF file or hone's artifact, by the name of the output.
void write_model(const compress::Model& model, const fs::path& out, const fs::path& name,
                 const model_io::ArtifactNotes& notes) {
  HONE_TRACE_ZONE("write model", {"bytes", model.bytes()});
  const auto tokenizer = model.tokenizer();
  const model_io::ModelSource source{.architecture = model.architecture(),
                                     .tensors = model.tensors(),
                                     .tokenizer = tokenizer.get(),
                                     .generation_defaults = model.generation_defaults(),
                                     .file = &model,
                                     .metadata = model.metadata()};
  if (is_gguf(name)) {
    model_io::write_gguf(out, source);
  } else {
    model_io::write_artifact(out, source, std::nullopt, notes);
  }
}

// A folder beside the output, which may be a file.
fs::path trial_folder(const fs::path& out) {
  const fs::path target = output_target(out);
  return target.parent_path() / concat(target.filename().string(), ".trial");
}

// Writes the model next to `out`, opens it with the runtime and compares it to the original.
class QualityMeter {
 public:
  QualityMeter(const CompressJob& job, Executor& executor)
      : job_(job), executor_(executor), documents_(held_out_documents(job)) {}

  compress::Quality operator()(const compress::Model& model) const {
    HONE_TRACE_ZONE("measure quality", {"tokens", job_.recipe.eval_tokens});
    const AtomicFolder trial(trial_folder(job_.out));  // removed by the destructor
    const fs::path file = trial.staging() / (is_gguf(job_.out) ? "model.gguf" : "model");
    write_model(model, file, job_.out, {});
    EvalOptions options;
    options.model = file;
    options.baseline = job_.model;
    options.tokenizer = job_.tokenizer;
    options.documents = documents_;
    if (!job_.data.empty()) options.data_name = job_.data.string();
    options.max_tokens = job_.recipe.eval_tokens;
    options.stop = job_.stop;
    const EvalResult result = evaluate(options, executor_);
    const compress::QualityComparison& comparison = *result.card.comparison;
    return {.ppl_ratio = comparison.perplexity_ratio.value,
            .ppl_ratio_low = comparison.perplexity_ratio.low,
            .ppl_ratio_high = comparison.perplexity_ratio.high,
            .kl_mean = comparison.kl_mean.value,
            .kl_high = comparison.kl_mean.high,
            .top1_agreement = comparison.top1_agreement.value,
            .top1_low = comparison.top1_agreement.low,
            .card = result.document()};
  }

  const std::vector<std::string>& documents() const { return documents_; }

 private:
  const CompressJob& job_;
  Executor& executor_;
  std::vector<std::string> documents_;
};

CalibrationText calibrate(const CompressJob& job, const model_io::ModelFile& original,
                          std::span<const std::string> evaluation, Executor& executor) {
  if (job.recipe.calib_data.empty())
    return write_calibration(job.model, job.tokenizer, job.recipe, executor, job.stop);
  const auto tokenizer = original.tokenizer();
  return read_calibration(job.recipe, *tokenizer, evaluation);
}

// The parts of the weights' file, as they lie there: what decoding needs, alignment and header.
// Bits per weight leave the last two out; those of layers also the embedding and the head.
Json sizes_of(const fs::path& out) {
  const auto written =
      model_io::open_model_or_throw(out, {.tokenizer = {}, .need_tokenizer = false});
  Index codes = 0, scales = 0, zeros = 0, blocks = 0, floats = 0, elements = 0, padding = 0;
  Index layer_bytes = 0, layer_elements = 0;
  const auto add = [&padding](Index& part, std::span<const std::byte> blob) {
    const auto bytes = static_cast<Index>(blob.size());
    part += bytes;
    padding += round_up(bytes, 64) - bytes;
  };
  for (const model_io::NamedMatrix& tensor : written->tensors()) {
    const StoredMatrix& matrix = tensor.matrix;
    elements += matrix.rows * matrix.cols;
    if (compress::role_of(tensor) == compress::Role::Linear) {
      layer_bytes += matrix.stored_bytes();
      layer_elements += matrix.rows * matrix.cols;
    }
    if (matrix.layout == WeightLayout::Dense) floats += matrix.stored_bytes();
    if (matrix.layout == WeightLayout::GgufBlocks) add(blocks, matrix.bytes);
    if (matrix.layout != WeightLayout::Canonical) continue;
    add(codes, matrix.quant.codes);
    add(scales, matrix.quant.scales);
    add(zeros, matrix.quant.zeros);
  }
  const Index parts = codes + scales + zeros + blocks + floats;
  if (is_gguf(out)) padding = 0;
  const auto bits = [](Index bytes, Index weights) {
    return 8.0 * static_cast<double>(bytes) / static_cast<double>(std::max<Index>(weights, 1));
  };
  return {{"file_bytes", written->file_bytes()},
          {"bits_per_weight", bits(parts, elements)},
          {"bits_per_layer_weight", bits(layer_bytes, layer_elements)},
          {"parts",
           {{"codes", codes},
            {"scales", scales},
            {"zeros", zeros},
            {"blocks", blocks},
            {"float", floats},
            {"padding", padding},
            {"header", written->file_bytes() - parts - padding}}}};
}

Json passes_of(const compress::Result& result) {
  Json passes = Json::array();
  for (const compress::PassRecord& record : result.passes) passes.push_back(to_json(record));
  return passes;
}

// What was measured of the model as it is in the end: after the last pass that was applied.
Json card_of(const compress::Result& result) {
  const auto last = std::find_if(result.passes.rbegin(), result.passes.rend(), [](const auto& one) {
    return one.status == compress::Status::Applied;
  });
  return last != result.passes.rend() && last->quality ? last->quality->card : Json();
}

// Bytes of the file to write that belong to no tensor: keys and vocabulary of a GGUF, otherwise the
// header. The original's are known if it is a GGUF, too.
Index file_overhead(const model_io::ModelFile& original, const fs::path& out) {
  constexpr Index kPerTensor = 256, kPerToken = 24;
  const Index headers = kPerTensor * std::ssize(original.tensors());
  if (!is_gguf(out)) return headers;
  if (original.format() != model_io::ModelFormat::Gguf)
    return headers + kPerToken * original.architecture().vocab_size;
  Index tensors = 0;
  for (const model_io::NamedMatrix& tensor : original.tensors())
    tensors += tensor.matrix.stored_bytes();
  return original.file_bytes() - tensors + std::ssize(original.tensors()) * 32;
}

// Because of a gate.
bool is_rolled_back(const compress::PassRecord& record) {
  return !record.gate_held && record.status != compress::Status::Applied;
}

}  // namespace

CompressOutcome compress_model(const CompressJob& job, Executor& executor, Measurer& measurer) {
  for (const fs::path& input : {job.model, job.tokenizer, job.recipe_file, job.data,
                                fs::path(job.recipe.eval_data), fs::path(job.recipe.calib_data)}) {
    check_output_spares(job.out, input);
  }
  is_gguf(job.out) ? model_io::check_model_file(job.out) : model_io::check_model_folder(job.out);
  remove_stale_temporaries(output_target(job.out).parent_path());
  const auto original = model_io::open_model_or_throw(job.model, {.tokenizer = job.tokenizer});
  model_io::refuse_factored(original->architecture(), job.model.string());
  compress::check_recipe(*original, job.recipe);
  for (const fs::path& file : original->files()) check_output_spares(job.out, file);
  const QualityMeter quality(job, executor);
  const Json source = hash_of(job.model, original->files());  // reads the whole model
  compress::Context context{
      .executor = executor, .measurer = measurer, .quality = quality, .stop = job.stop};
  CalibrationText calibration;
  if (compress::needs_calibration(job.recipe)) {
    calibration = calibrate(job, *original, quality.documents(), executor);
    context.calibration = calibration.texts;
  }
  std::optional<compress::Result> made;
  context.file_overhead = file_overhead(*original, job.out);
  compress::Recipe recipe = job.recipe;
  CompressOutcome outcome;
  if (recipe.allocate.is_wanted()) {
    const compress::AllocatedRecipe plan =
        compress::allocate(compress::Model(*original), recipe, context);
    recipe = plan.recipe;
    outcome.document["allocation"] = {{"groups", plan.groups},
                                      {"bytes", plan.bytes + context.file_overhead},
                                      {"predicted_kl", plan.predicted_kl},
                                      {"recipe", compress::to_toml(recipe)}};
    if (job.plan) {
      outcome.gates_held = true;
      return outcome;
    }
  }
  blame_weights({&job.model, 1},
                [&] { made.emplace(compress::compress(*original, recipe, context)); });
  const compress::Result& result = *made;
  compress::throw_if_cancelled(context);

  outcome.document.update({{"model", job.model.string()},
                           {"out", job.out.string()},
                           {"passes", passes_of(result)},
                           {"sizes", nullptr},
                           {"quality", nullptr},
                           {"source", source},
                           {"calibration", calibration.about}});
  const auto has_status = [&](compress::Status status) {
    return std::ranges::find(result.passes, status, &compress::PassRecord::status) !=
           result.passes.end();
  };
  outcome.gates_held =
      !has_status(compress::Status::Failed) && std::ranges::none_of(result.passes, &is_rolled_back);
  if (result.stopped || !has_status(compress::Status::Applied)) return outcome;
  const Json card = card_of(result);
  const model_io::ArtifactNotes notes{
      .metadata = {{"hone.toolkit", version_text()},
                   {"hone.source", source.dump()},
                   {"hone.calibration", calibration.about.dump()}},
      .files = {{"recipe.toml", compress::to_toml(recipe)}, {"quality.json", card.dump(2) + "\n"}}};
  write_model(result.model, job.out, job.out, notes);
  outcome.document["sizes"] = sizes_of(job.out);
  outcome.document["quality"] = card;
  outcome.written = true;
  if (hash_of(job.model, original->files()) != source) {
    fail(ErrorCategory::Internal, job.model.string(), "The original changed during compression.");
  }
  return outcome;
}

std::string to_table(const CompressOutcome& outcome) {
  const Json& document = outcome.document;
  std::string text;
  if (const auto plan = document.find("allocation"); plan != document.end()) {
    text += concat("allocation: ", format_bytes((*plan)["bytes"].get<Index>()),
                   ", predicted mean KL ", (*plan)["predicted_kl"].get<double>(), " nats\n");
    if (!document.contains("passes")) return text + (*plan)["recipe"].get<std::string>();
  }
  for (const Json& pass : document["passes"]) {
    text += concat(pass["name"].get<std::string>(), ": ", pass["status"].get<std::string>(), " (",
                   escape_controls(pass["reason"].get<std::string>()), ")\n  ",
                   format_bytes(pass["bytes_before"].get<Index>()), " -> ",
                   format_bytes(pass["bytes_after"].get<Index>()), " in ", pass["evidence"].size(),
                   " matrices\n");
    if (const Index again = pass["rounded_again"].get<Index>(); again > 0)
      text += concat("  ", again, " of them were quantized already and have been rounded again\n");
    if (const Json& kept = pass["kept"]; !kept.empty())
      text += concat("  ", kept.size(), " more stay as they are, such as ",
                     escape_controls(kept[0]["tensor"].get<std::string>()), ": ",
                     kept[0]["reason"].get<std::string>(), "\n");
    if (!pass["speedup"].is_null()) {
      const Json& speedup = pass["speedup"];
      text += concat("  products ", pass["ms_before"].get<double>(), " -> ",
                     pass["ms_after"].get<double>(), " ms, ", speedup["ratio"].get<double>(), "x [",
                     speedup["ci"][0].get<double>(), ", ", speedup["ci"][1].get<double>(), "]\n");
    }
    if (!pass["quality"].is_null()) {
      const Json& card = pass["quality"];
      text += concat("  perplexity ratio ", fixed(card["ppl_ratio"].get<double>(), 4), " [",
                     fixed(card["ppl_ratio_ci"][0].get<double>(), 4), ", ",
                     fixed(card["ppl_ratio_ci"][1].get<double>(), 4), "], mean KL ",
                     card["kl_mean"].get<double>(), " nats, top-1 agreement ",
                     fixed(100 * card["top1_agreement"].get<double>(), 2), " %\n");
    }
  }
  if (!outcome.written) return text + "nothing written\n";
  const Json& sizes = document["sizes"];
  return text + concat(escape_controls(document["out"].get<std::string>()), ": ",
                       format_bytes(sizes["file_bytes"].get<Index>()), " of weights, ",
                       fixed(sizes["bits_per_weight"].get<double>(), 2), " bits per weight\n");
}

}  // namespace hone::app
