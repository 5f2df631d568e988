// SPDX-License-Identifier: Apache-2.0
#include "hone/app/compress/compress.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "hone/app/blame_weights.h"
#include "hone/app/compress/calibration.h"
#include "hone/app/compress/card.h"
#include "hone/compress/compress.h"
#include "hone/compress/forecast.h"
#include "hone/compress/step_store.h"
#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/sha256.h"
#include "hone/core/log.h"
#include "hone/core/machine/trace.h"
#include "hone/core/names.h"
#include "hone/core/progress.h"
#include "hone/core/text_format.h"
#include "hone/core/version.h"
#include "hone/model_io/factored_config.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;

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
Index file_overhead(const model_io::ModelFile& original, const ModelOutput& out) {
  constexpr Index kPerTensor = 256, kPerToken = 24;
  const Index headers = kPerTensor * std::ssize(original.tensors());
  if (out.is_folder()) return headers;
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

Json names_of(const std::vector<CardText>& texts) {
  Json names = Json::array();
  for (const CardText& text : texts) names.push_back(text.name);
  return names;
}

// Calibration texts of an interrupted run, or newly written ones.
CalibrationText own_calibration(const CompressJob& job, const compress::StepStore& steps,
                                Executor& executor) {
  constexpr const char* kName = "calibration.json";
  if (const auto saved = steps.text(kName)) {
    const Json json = parse_json(*saved, kName);
    return {.texts = json.at("texts").get<std::vector<std::vector<text::TokenId>>>(),
            .about = json.at("about"),
            .held_out = {}};
  }
  CalibrationText text =
      write_calibration(job.model, job.tokenizer, job.recipe, executor, job.stop);
  steps.save_text(kName, Json{{"texts", text.texts}, {"about", text.about}}.dump());
  return text;
}

// The last eighth of the texts that the model wrote, which is not used for calibration but on the
// card.
std::optional<CardText> hold_back(CalibrationText& calibration) {
  const auto count = calibration.texts.size() / 8;
  if (count == 0) return std::nullopt;
  CardText text{.name = "text that the original model wrote", .ids = std::vector<text::TokenId>()};
  for (std::size_t i = calibration.texts.size() - count; i < calibration.texts.size(); ++i)
    text.ids->insert(text.ids->end(), calibration.texts[i].begin(), calibration.texts[i].end());
  calibration.texts.resize(calibration.texts.size() - count);
  return text;
}

class CompressRun {
 public:
  CompressRun(const CompressJob& job, Executor& executor, Measurer& measurer)
      : job_(job),
        executor_(executor),
        measurer_(measurer),
        out_(job.out, job.to, model_io::ModelFormat::HoneArtifact, "compress", false) {}

  CompressOutcome run();

 private:
  void open();
  void check_format() const;
  bool has_masks() const { return out_.format() == model_io::ModelFormat::HoneArtifact; }
  Json foresee(Index texts) const;
  // Reads or writes the calibration text, and opens the steps of an interrupted run.
  void prepare(CardMeter& meter);
  void write(const compress::Result& result, const CardText& text, CompressOutcome& outcome) const;

  const CompressJob& job_;
  Executor& executor_;
  Measurer& measurer_;
  ModelOutput out_;
  std::unique_ptr<model_io::ModelFile> original_;
  Json source_;  // hashes of the original's files
  CalibrationText calibration_;
  std::optional<compress::StepStore> steps_;
};

// Everything that can be refused before the work.
void CompressRun::open() {
  std::vector<fs::path> inputs = job_.data;
  inputs.insert(inputs.end(),
                {job_.model, job_.tokenizer, job_.recipe_file, fs::path(job_.recipe.calib_data)});
  inputs.insert(inputs.end(), job_.recipe.eval_data.begin(), job_.recipe.eval_data.end());
  out_.check(inputs);
  remove_stale_temporaries(output_target(job_.out).parent_path());
  original_ = model_io::open_model_or_throw(job_.model, {.tokenizer = job_.tokenizer});
  model_io::refuse_factored(original_->architecture(), job_.model.string());
  check_format();
  compress::check_recipe(*original_, job_.recipe, file_overhead(*original_, out_));
  out_.check(original_->files());
}

// Every format that a recipe names for matrices.
std::vector<std::string> formats_of(const compress::Recipe& recipe) {
  std::vector<std::string> formats;
  for (const std::string* one : {&recipe.head, &recipe.embedding})
    if (*one != "auto" && *one != "float") formats.push_back(*one);
  for (const compress::PassOptions& options : recipe.passes) {
    const auto* const pass = std::get_if<compress::QuantizePass>(&options);
    if (pass == nullptr) continue;
    formats.push_back(pass->spec);
    for (const std::string& entry : pass->formats)
      formats.push_back(entry.substr(entry.find('=') + 1));
  }
  if (recipe.allocate.is_wanted())
    formats.insert(formats.end(), recipe.allocate.formats.begin(), recipe.allocate.formats.end());
  return formats;
}

// A GGUF would hold other formats as f16.
void check_gguf_formats(const compress::Recipe& recipe, const std::string& where) {
  const std::string known = join_names(compress::gguf_format_names());
  for (const std::string& name : formats_of(recipe)) {
    const bool fits =
        compress::find_gguf_format(compress::parse_weight_format(name)->name()) != nullptr;
    HONE_CHECK(fits, where, concat("formats of GGUF in a GGUF file (", known, ")"), name);
  }
}

// What the output's format cannot hold.
void CompressRun::check_format() const {
  using model_io::ModelFormat;
  const std::string where = job_.out.string();
  if (out_.format() == ModelFormat::Gguf) check_gguf_formats(job_.recipe, where);
  HONE_REQUIRE(out_.format() != ModelFormat::HuggingFace || !job_.recipe.allocate.is_wanted(),
               where, "A Hugging Face folder has no quantized matrices, so no budget can be kept.");
  for (const compress::PassOptions& options : job_.recipe.passes) {
    if (std::holds_alternative<compress::LowRankPass>(options) && !has_masks())
      fail_unsupported(where, "Only hone's format holds factored products: name a folder.");
    const auto* const part = std::get_if<compress::StructurePass>(&options);
    const bool by_glob = part != nullptr && part->part != compress::Part::Layers &&
                         (part->apply != std::vector<std::string>{"*"} || !part->except.empty());
    if (by_glob && !has_masks())
      fail_unsupported(where,
                       "Only hone's format holds layers of different widths: name a folder.");
  }
}

void CompressRun::prepare(CardMeter& meter) {
  const bool needs_text = compress::needs_calibration(job_.recipe);
  const bool has_file = !job_.recipe.calib_data.empty();
  if (!needs_text && has_file) log_warning("no pass of this run needs a calibration text");
  if (needs_text && has_file) {
    std::vector<std::string> evaluation;
    for (const CardText& text : meter.texts())
      evaluation.insert(evaluation.end(), text.documents.begin(), text.documents.end());
    calibration_ = read_calibration(job_.recipe, *original_, evaluation);
  }
  const Json key = {{"model", original_->identity()},
                    {"tokenizer", job_.tokenizer.string()},
                    {"recipe", compress::to_toml(job_.recipe)},
                    {"calibration", calibration_.about},
                    {"card", names_of(meter.texts())},
                    {"format", name_of(out_.format())},
                    {"toolkit", version_text()}};
  steps_.emplace(beside(job_.out, ".resume"), sha256_hex_of_text(key.dump()));
  if (!needs_text) return;
  if (!has_file) {
    calibration_ = own_calibration(job_, *steps_, executor_);
    if (auto text = hold_back(calibration_)) meter.add_text(*std::move(text));
    return;
  }
  if (!calibration_.held_out.empty())
    meter.add_text({.name = concat("held-out part of ", job_.recipe.calib_data),
                    .documents = calibration_.held_out});
}

void CompressRun::write(const compress::Result& result, const CardText& text,
                        CompressOutcome& outcome) const {
  Json card = card_of(result);
  if (card.is_object()) card["layers"] = layer_errors(*original_, result.model, text, executor_);
  const model_io::ArtifactNotes notes{.metadata = {{"hone.toolkit", version_text()},
                                                   {"hone.source", source_.dump()},
                                                   {"hone.calibration", calibration_.about.dump()}},
                                      .files = {{"recipe.toml", compress::to_toml(result.recipe)},
                                                {"quality.json", card.dump(2) + "\n"}}};
  const auto tokenizer = result.model.tokenizer();
  HONE_TRACE_ZONE("write model", {"bytes", result.model.bytes()});
  out_.write(source_of(result.model, tokenizer.get()), std::nullopt, notes);
  outcome.document["sizes"] = sizes_of(job_.out, result.model, job_.tokenizer, executor_);
  outcome.document["quality"] = card;
  outcome.written = true;
  if (hash_of(job_.model, original_->files()) != source_)
    fail(ErrorCategory::Internal, job_.model.string(), "The original changed during compression.");
}

// What the run will take; `texts` are those of the card that are known by now.
Json CompressRun::foresee(Index texts) const {
  const Index all = texts + (compress::needs_calibration(job_.recipe) ? 1 : 0);
  const compress::Forecast forecast =
      compress::forecast(*original_, job_.recipe,
                         {.overhead = file_overhead(*original_, out_),
                          .masks = has_masks(),
                          .codes = out_.format() != model_io::ModelFormat::HuggingFace},
                         job_.recipe.eval_tokens * all, executor_);
  constexpr double kLongMinutes = 0.5;
  if (forecast.minutes > kLongMinutes)
    log_info(concat("compress: about ", format_bytes(forecast.file_bytes), " of weights, ",
                    format_bytes(forecast.peak_bytes), " of memory and ",
                    fixed(forecast.minutes, 1), " minutes"));
  return {{"file_bytes", forecast.file_bytes},
          {"peak_bytes", forecast.peak_bytes},
          {"minutes", forecast.minutes}};
}

CompressOutcome CompressRun::run() {
  open();
  CardMeter meter(job_, out_, executor_);
  CompressOutcome outcome;
  outcome.document["forecast"] = foresee(std::ssize(meter.texts()));
  if (job_.plan && !job_.recipe.allocate.is_wanted()) {
    outcome.gates_held = true;
    return outcome;
  }
  source_ = hash_of(job_.model, original_->files());  // reads the whole model
  prepare(meter);
  compress::Context context{
      .executor = executor_,
      .measurer = measurer_,
      .quality = [&meter](const compress::Model& model) { return meter(model); }};
  context.calibration = calibration_.texts;
  context.file_overhead = file_overhead(*original_, out_);
  context.masks = has_masks();
  context.steps = &*steps_;
  context.stop = job_.stop;
  const compress::Result result = compress::compress(*original_, job_.recipe, context, job_.plan);
  compress::throw_if_cancelled(context);

  if (!result.allocation.is_null()) {
    outcome.document["allocation"] = result.allocation;
    outcome.document["allocation"]["recipe"] = compress::to_toml(result.recipe);
  }
  const auto has_status = [&](compress::Status status) {
    return std::ranges::find(result.passes, status, &compress::PassRecord::status) !=
           result.passes.end();
  };
  outcome.gates_held =
      !has_status(compress::Status::Failed) && std::ranges::none_of(result.passes, &is_rolled_back);
  if (job_.plan) return outcome;  // its steps stay for the run
  outcome.document.update({{"model", job_.model.string()},
                           {"out", job_.out.string()},
                           {"passes", passes_of(result)},
                           {"sizes", nullptr},
                           {"quality", nullptr},
                           {"source", source_},
                           {"calibration", calibration_.about}});
  if (!result.stopped && has_status(compress::Status::Applied))
    write(result, meter.texts().front(), outcome);
  steps_->finish();
  return outcome;
}

}  // namespace

CompressOutcome compress_model(const CompressJob& job, Executor& executor, Measurer& measurer) {
  std::optional<CompressOutcome> outcome;
  blame_weights({&job.model, 1},
                [&] { outcome.emplace(CompressRun(job, executor, measurer).run()); });
  return *std::move(outcome);
}

}  // namespace hone::app
