// SPDX-License-Identifier: Apache-2.0
#include "hone/app/compress/card.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "hone/app/eval_lm.h"
#include "hone/app/eval_windows.h"
#include "hone/compress/model.h"
#include "hone/compress/quality/error_propagation.h"
#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/format/bitmask.h"
#include "hone/core/machine/process_memory.h"
#include "hone/core/machine/trace.h"
#include "hone/data/text_source.h"
#include "hone/infer/collect.h"
#include "hone/infer/engine.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;

compress::Quality quality_of(const EvalResult& result, const std::string& name) {
  const compress::QualityComparison& comparison = *result.card.comparison;
  compress::Quality quality{.ppl_ratio = comparison.perplexity_ratio.value,
                            .ppl_ratio_low = comparison.perplexity_ratio.low,
                            .ppl_ratio_high = comparison.perplexity_ratio.high,
                            .kl_mean = comparison.kl_mean.value,
                            .kl_high = comparison.kl_mean.high,
                            .top1_agreement = comparison.top1_agreement.value,
                            .top1_low = comparison.top1_agreement.low,
                            .card = result.document()};
  quality.card["text"] = name;
  return quality;
}

// Each figure of the text where it is worst.
void take_worst(const compress::Quality& one, compress::Quality& worst) {
  if (one.ppl_ratio_high > worst.ppl_ratio_high) {
    worst.ppl_ratio = one.ppl_ratio;
    worst.ppl_ratio_low = one.ppl_ratio_low;
    worst.ppl_ratio_high = one.ppl_ratio_high;
  }
  if (one.kl_high > worst.kl_high) {
    worst.kl_mean = one.kl_mean;
    worst.kl_high = one.kl_high;
  }
  if (one.top1_low < worst.top1_low) {
    worst.top1_agreement = one.top1_agreement;
    worst.top1_low = one.top1_low;
  }
}

// Bytes that loading a model and making one token adds to this process.
Json memory_of(const fs::path& model, const fs::path& tokenizer, Executor& executor) {
  HONE_TRACE_ZONE("measure memory");
  release_free_memory();
  const Index before = resident_bytes();
  const bool has_peak = reset_resident_peak();
  infer::EngineOptions options;
  options.executor = &executor;
  options.tokenizer = tokenizer;
  options.need_tokenizer = false;
  const auto engine = infer::Engine::open_or_throw(model, options);
  auto sink = std::make_shared<infer::CollectSink>();
  engine->submit({.tokens = {0}, .ignore_eos = true, .max_tokens = 1}, sink);
  while (!sink->is_finished()) engine->step();
  sink->check();
  const Index after = resident_bytes(), peak = has_peak ? peak_resident_bytes() : 0;
  return {{"resident_bytes", std::max<Index>(0, after - before)},
          {"peak_bytes", has_peak ? Json(std::max<Index>(0, peak - before)) : Json()}};
}

}  // namespace

fs::path beside(const fs::path& out, std::string_view suffix) {
  const fs::path target = output_target(out);
  return target.parent_path() / concat(target.filename().string(), suffix);
}

std::vector<CardText> card_texts(const CompressJob& job) {
  std::vector<fs::path> paths = job.data;
  if (paths.empty()) paths.assign(job.recipe.eval_data.begin(), job.recipe.eval_data.end());
  if (paths.empty()) paths.emplace_back("stories");
  std::vector<CardText> texts;
  for (const fs::path& path : paths) {
    CardText text{.name = path.string(), .documents = data::load_text(path).held_out};
    if (text.documents.empty())
      fail_corrupt(path.string(), "The text is too short: its last tenth is empty.");
    texts.push_back(std::move(text));
  }
  return texts;
}

compress::Quality CardMeter::measure(const fs::path& file, const CardText& text) const {
  EvalOptions options;
  options.model = file;
  options.baseline = job_.model;
  options.tokenizer = job_.tokenizer;
  options.documents = text.documents;
  options.token_ids = text.ids;
  options.data_name = text.name;
  options.max_tokens = job_.recipe.eval_tokens;
  options.stop = job_.stop;
  return quality_of(evaluate(options, executor_), text.name);
}

compress::Quality CardMeter::operator()(const compress::Model& model) const {
  HONE_TRACE_ZONE("measure quality", {"tokens", job_.recipe.eval_tokens});
  const AtomicFolder trial(beside(out_.path(), ".trial"));  // removed by the destructor
  const fs::path file = trial.staging() / (out_.is_folder() ? "model" : "model.gguf");
  const auto tokenizer = model.tokenizer();
  out_.at(file).write(source_of(model, tokenizer.get()), std::nullopt);
  compress::Quality quality = measure(file, texts_.front());
  Json more = Json::array();
  for (std::size_t i = 1; i < texts_.size(); ++i) {
    compress::Quality other = measure(file, texts_[i]);
    take_worst(other, quality);
    more.push_back(std::move(other.card));
  }
  quality.card["other_texts"] = std::move(more);
  return quality;
}

Json layer_errors(const model_io::ModelFile& original, const compress::Model& model,
                  const CardText& text, Executor& executor) {
  constexpr Index kTokens = 128;
  constexpr std::size_t kTexts = 4;
  if (original.architecture().layers != model.architecture().layers) return {};
  text::TokenStream stream;
  const auto tokenizer = original.tokenizer();
  if (text.ids) {
    stream.add_document(*text.ids);
  } else {
    stream = encode_for_eval(*tokenizer, text.documents);
  }
  const auto start = tokenizer != nullptr ? window_start(*tokenizer) : std::nullopt;
  const Index length = std::min(kTokens, original.architecture().context);
  std::vector<std::vector<text::TokenId>> texts;
  for (EvalWindow& window : make_eval_windows(stream, length, start)) {
    if (texts.size() == kTexts) break;
    texts.push_back(std::move(window.tokens));
  }
  if (texts.empty()) return {};
  return to_json(compress::propagate_errors(original, model, texts, executor));
}

model_io::ModelSource source_of(const compress::Model& model, const text::Tokenizer* tokenizer) {
  return {.architecture = model.architecture(),
          .tensors = model.tensors(),
          .tokenizer = tokenizer,
          .generation_defaults = model.generation_defaults(),
          .file = &model,
          .metadata = model.metadata()};
}

// The parts of the weights' file are as they lie there: what decoding needs, alignment and header.
// Bits per weight leave the last two out; those of layers also the embedding and the head.
Json sizes_of(const fs::path& out, const compress::Model& model, const fs::path& tokenizer,
              Executor& executor) {
  const auto written =
      model_io::open_model_or_throw(out, {.tokenizer = {}, .need_tokenizer = false});
  const bool has_blobs = written->format() == model_io::ModelFormat::HoneArtifact;
  Index masks = 0, codes = 0, scales = 0, zeros = 0, blocks = 0, floats = 0, padding = 0;
  Index elements = 0, layer_bytes = 0, layer_elements = 0, bytes_of_matrix = 0;
  const auto add = [&](Index& part, Index bytes, bool is_blob = true) {
    part += bytes;
    bytes_of_matrix += bytes;
    if (is_blob && has_blobs) padding += round_up(bytes, 64) - bytes;
  };
  for (const model_io::NamedMatrix& tensor : written->tensors()) {
    const StoredMatrix& matrix = tensor.matrix;
    // The writer looks at what it is given, which may still be blocks.
    const bool may_mask = has_blobs && !tensor.is_vector;
    const auto masked = may_mask ? masked_sizes(model.tensor(tensor.name).matrix) : std::nullopt;
    bytes_of_matrix = 0;
    if (masked) add(masks, masked->mask);
    if (matrix.layout == WeightLayout::GgufBlocks) add(blocks, std::ssize(matrix.bytes));
    if (matrix.layout == WeightLayout::Dense)
      add(floats, masked ? masked->kept : std::ssize(matrix.bytes), masked.has_value());
    if (matrix.layout == WeightLayout::Canonical) {
      add(codes, masked ? masked->kept : std::ssize(matrix.quant.codes));
      add(scales, std::ssize(matrix.quant.scales));
      add(zeros, std::ssize(matrix.quant.zeros));
    }
    elements += matrix.rows * matrix.cols;
    if (compress::role_of(tensor) != compress::Role::Linear) continue;
    layer_bytes += bytes_of_matrix;
    layer_elements += matrix.rows * matrix.cols;
  }
  const Index parts = masks + codes + scales + zeros + blocks + floats;
  const auto bits = [](Index bytes, Index weights) {
    return 8.0 * static_cast<double>(bytes) / static_cast<double>(std::max<Index>(weights, 1));
  };
  Json sizes = {{"file_bytes", written->file_bytes()},
                {"bits_per_weight", bits(parts, elements)},
                {"bits_per_layer_weight", bits(layer_bytes, layer_elements)},
                {"parts",
                 {{"masks", masks},
                  {"codes", codes},
                  {"scales", scales},
                  {"zeros", zeros},
                  {"blocks", blocks},
                  {"float", floats},
                  {"padding", padding},
                  {"header", written->file_bytes() - parts - padding}}}};
  sizes.update(memory_of(out, tokenizer, executor));
  return sizes;
}

}  // namespace hone::app
