// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/demo.h"

#include <array>

#include "hone/app/compress/compress.h"
#include "hone/app/convert.h"
#include "hone/app/torch/demo_report.h"
#include "hone/app/torch/demo_variant.h"
#include "hone/app/torch/train_run.h"
#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/folder_lock.h"
#include "hone/core/file/sha256.h"
#include "hone/core/log.h"
#include "hone/core/machine/clock.h"
#include "hone/core/machine/machine_card.h"
#include "hone/core/machine/trace.h"
#include "hone/core/names.h"
#include "hone/core/text_format.h"
#include "hone/data/text_source.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;

// The time from which the number of steps follows; the set-up of the run and its last validation
// are not part of it.
constexpr double kTrainMinutes = 2, kQuickMinutes = 0.4;
// On the stories, however slow or fast the machine is. The least number ends at 1.04 to 1.06 times
// their entropy, depending on the seed.
constexpr Index kMinTrainSteps = 2300, kMaxTrainSteps = 5000;
// About 20,000 and 10,000 tokens.
constexpr Index kHeldOutStories = 140, kQuickHeldOutStories = 70;

task::LmConfig config_for(const DemoOptions& options) {
  task::LmConfig config;
  config.data.path = options.data.string();
  config.model.hidden_size = 128;
  config.model.intermediate_size = 352;  // whole blocks of 32 columns
  config.model.heads = 4;
  config.model.context = 256;  // more than the longest story
  config.data.vocab_size = 1024;
  config.trainer.micro_batch = 6;
  // In the same time, widths of 96 and 160, 3 and 5 layers, a cosine, peak rates of 0.002 and
  // 0.004, a beta2 of 0.95 and micro-batches of 4 end 1 to 3 % further from the entropy.
  config.lr.schedule = "linear";
  config.lr.peak = 0.003;
  config.lr.final_ratio = 0;
  config.optim.beta2 = 0.99;
  config.optim.weight_decay = 0;
  config.trainer.seed = options.seed;
  return config;
}

std::string hash_of_text(const fs::path& path) {
  const data::TextCorpus corpus = data::load_text(path);
  return sha256_hex_of_text(data::join_documents(corpus.train) +
                            data::join_documents(corpus.held_out));
}

// Two runs are the same if their configuration and text are; the number of steps, which is
// measured, is not part of the hash.
std::string run_key(const DemoOptions& options, const task::LmConfig& config) {
  return concat(config_hash(config), options.quick ? " quick " : " ",
                options.data.empty() ? sha256_hex(std::as_bytes(std::span(data::kStoryText)))
                                     : hash_of_text(options.data));
}

TrainLmResult read_result(const Json& json) {
  const auto number = [&json](const char* name) {
    const Json& value = json.at(name);
    return value.is_null() ? std::nullopt : std::optional(value.get<double>());
  };
  TrainLmResult result;
  result.steps = json.at("steps").get<Index>();
  result.parameters = json.at("parameters").get<Index>();
  result.train_loss = number("train_loss");
  result.val_loss = json.at("val_loss").get<double>();
  result.val_bits_per_byte = json.at("val_bits_per_byte").get<double>();
  result.tokens_per_s = number("tokens_per_s");
  result.seconds = json.at("seconds").get<double>();
  result.out = json.at("out").get<std::string>();
  result.model = json.at("model").get<std::string>();
  return result;
}

// Trains, resumes a killed run of the same key, or takes the finished one.
void train_or_reuse(const DemoOptions& options, const task::LmConfig& config,
                    const std::string& key, DemoResult& result) {
  const fs::path run = options.out / "train", record = options.out / "train.json";
  Json known = Json::object();
  if (fs::exists(record) && !options.fresh) known = read_json_file(record);
  const bool same = known.value("key", "") == key;
  if (same && known.contains("result") && fs::exists(run / "model" / "model.safetensors")) {
    result.training = read_result(known["result"]);
    result.trained_before = true;
    log_info(concat("using the model trained before in ", run.string(), " (--fresh trains again)"));
    return;
  }
  write_json_file(record, {{"key", key}});
  const bool resume = same && holds_run(run);
  const bool bounded = options.data.empty() && !options.quick;
  HONE_TRACE_ZONE("train model");
  result.training = train_lm({.config = config,
                              .out = run,
                              .resume = resume,
                              .fresh = !resume,
                              .minutes = options.quick ? kQuickMinutes : kTrainMinutes,
                              .min_steps = bounded ? kMinTrainSteps : 0,
                              .max_steps = bounded ? kMaxTrainSteps : 0,
                              .threads = options.threads,
                              .stop = options.stop});
  write_json_file(record, {{"key", key}, {"result", to_json(result.training)}});
}

Index weight_bytes(const fs::path& path) {
  return static_cast<Index>(
      fs::file_size(fs::is_directory(path) ? path / "model.safetensors" : path));
}

DemoVariant add_compressed(const DemoOptions& options, const std::string& spec, Executor& executor,
                           Measurer& measurer, DemoResult& result) {
  HONE_TRACE_ZONE("compress model", {"variant", spec});
  CompressJob job;
  job.model = result.training.model;
  job.out = options.out / spec.substr(0, spec.find(':'));
  if (!options.data.empty()) job.data.push_back(options.data);
  job.recipe.passes.push_back(compress::parse_quantize_option(spec));
  // The demo shows every variant, even one that a gate would reject; the record says so.
  job.recipe.gate.on_fail = compress::OnFail::Keep;
  job.stop = options.stop;
  const CompressOutcome outcome = compress_model(job, executor, measurer);
  for (Json pass : outcome.document["passes"]) {
    pass["variant"] = spec;
    result.passes.push_back(std::move(pass));
  }
  DemoVariant variant;
  variant.name = spec;
  variant.path = job.out;
  return variant;
}

DemoVariant add_gguf(const DemoOptions& options, const std::string& dtype,
                     const DemoResult& result) {
  ConvertOptions convert;
  convert.in = result.training.model;
  convert.out = options.out / ("model-" + dtype + ".gguf");
  convert.dtype = dtype;
  convert_model(convert);
  DemoVariant variant;
  variant.name = "gguf " + dtype;
  variant.path = convert.out;
  return variant;
}

void make_variants(const DemoOptions& options, Executor& executor, Measurer& measurer,
                   DemoResult& result) {
  DemoVariant original;
  original.name = "fp32";
  original.path = result.training.model;
  result.variants.push_back(original);
  for (const char* spec : {"int8:row", "int4:g32"}) {
    result.variants.push_back(add_compressed(options, spec, executor, measurer, result));
  }
  for (const char* dtype : {"q8_0", "q4_0"}) {
    result.variants.push_back(add_gguf(options, dtype, result));
  }
  for (DemoVariant& variant : result.variants) variant.bytes = weight_bytes(variant.path);
}

// The first line of a text, or some of it.
std::string opening_of(const std::string& text) {
  return text.substr(0, std::min<std::size_t>(text.find('\n'), 40));
}

std::vector<Index> find_front(const std::vector<DemoVariant>& variants) {
  std::vector<std::vector<measure::Objective>> candidates;
  for (const DemoVariant& variant : variants) {
    const auto bytes = static_cast<double>(variant.bytes);
    const compress::Estimate& ratio = variant.eval.card.comparison->perplexity_ratio;
    const Spread& speed = variant.tokens_per_s;
    candidates.push_back({{bytes, bytes, bytes},
                          {ratio.value, ratio.low, ratio.high},
                          {1 / speed.median, 1 / speed.p90, 1 / speed.p10}});
  }
  return measure::pareto_front(candidates);
}

double bits_per_weight(const DemoVariant& variant, const DemoResult& result) {
  return 8.0 * static_cast<double>(variant.bytes) / static_cast<double>(result.training.parameters);
}

void throw_if_stopped(const DemoOptions& options) {
  if (options.stop.stop_requested()) {
    fail(ErrorCategory::Cancelled, "demo", "The demo was interrupted; run it again to continue.");
  }
}

}  // namespace

DemoResult run_demo(const DemoOptions& options, Executor& executor, Measurer& measurer) {
  const std::int64_t begin = steady_clock().now_ns();
  const task::LmConfig config = config_for(options);
  const std::string key = run_key(options, config);  // reads the text first
  const FolderLock lock(options.out);
  remove_stale_temporaries(options.out);
  DemoResult result;
  train_or_reuse(options, config, key, result);
  const fs::path weights = result.training.model / "model.safetensors";
  result.sha256_before = sha256_hex(weights);
  make_variants(options, executor, measurer, result);

  const data::StoryGrammar grammar;
  DemoTask task;
  task.baseline = result.training.model;
  if (options.data.empty()) {
    task.grammar = &grammar;
    const Index stories = options.quick ? kQuickHeldOutStories : kHeldOutStories;
    task.held_out =
        data::generate_story_corpus(grammar, 0, {.train = 0, .held_out = stories}).held_out;
    task.eval_tokens = 0;  // all, so that the floor is that of the same text
    task.prompt = data::kStorySeparator;
    const std::string text = data::join_documents(task.held_out);
    result.floor_bits_per_byte = -grammar.log2_probability(text) / static_cast<double>(text.size());
  } else {
    task.held_out = data::load_text(options.data).held_out;
    task.prompt = opening_of(task.held_out.front());
    task.stories = 1;
  }
  if (options.quick) task.eval_tokens /= 2;
  result.prompt = task.prompt;
  for (DemoVariant& variant : result.variants) {
    throw_if_stopped(options);
    log_info(concat("measuring ", variant.name));
    measure_quality(variant, task, executor);
  }
  measure_speed(result.variants, task, executor, measurer);
  result.front = find_front(result.variants);
  result.sha256_after = sha256_hex(weights);
  result.machine = machine_card(executor);
  result.seconds = seconds_between(begin, steady_clock().now_ns());
  result.report = options.out / "report.html";
  write_demo_report(result, options.out);
  return result;
}

std::optional<double> floor_ratio(const DemoResult& result) {
  const auto bits = result.variants.front().eval.card.bits_per_byte;
  if (!bits || !result.floor_bits_per_byte) return std::nullopt;
  return *bits / *result.floor_bits_per_byte;
}

Json to_json(const DemoResult& result) {
  Json variants = Json::array();
  for (const DemoVariant& variant : result.variants) {
    Json row = {{"name", variant.name},
                {"path", variant.path.string()},
                {"bytes", variant.bytes},
                {"quality", variant.eval.document()},
                {"tokens_per_s",
                 {{"median", variant.tokens_per_s.median},
                  {"p10", variant.tokens_per_s.p10},
                  {"p90", variant.tokens_per_s.p90},
                  {"n", variant.tokens_per_s.n}}},
                {"sample", variant.sample},
                {"stories", nullptr}};
    if (variant.verdict) {
      row["stories"] = {{"sentences", variant.verdict->sentences},
                        {"grammatical", variant.verdict->grammatical},
                        {"valid", variant.verdict->valid},
                        {"valid_share", variant.verdict->valid_share()},
                        {"stories", variant.verdict->stories},
                        {"finished", variant.verdict->finished}};
    }
    variants.push_back(std::move(row));
  }
  Json front = Json::array();
  for (const Index at : result.front) {
    front.push_back(result.variants[static_cast<std::size_t>(at)].name);
  }
  return {{"model", result.training.model.string()},
          {"parameters", result.training.parameters},
          {"steps", result.training.steps},
          {"val_loss", result.training.val_loss},
          {"val_bits_per_byte", result.training.val_bits_per_byte},
          {"floor_bits_per_byte",
           result.floor_bits_per_byte ? Json(*result.floor_bits_per_byte) : Json()},
          {"floor_ratio", to_json(floor_ratio(result))},
          {"train_seconds", result.training.seconds},
          {"trained_before", result.trained_before},
          {"variants", variants},
          {"front", front},
          {"passes", result.passes},
          {"sha256_before", result.sha256_before},
          {"sha256_after", result.sha256_after},
          {"machine", result.machine},
          {"seconds", result.seconds},
          {"report", result.report.string()}};
}

std::string to_table(const DemoResult& result) {
  const auto line = [](const std::array<std::string, 8>& cells) {
    constexpr std::array<Index, 8> kWidths{10, 10, 7, 27, 11, 9, 22, 8};
    std::string text = align_left(cells[0], kWidths[0]);
    for (std::size_t i = 1; i < cells.size(); ++i) text += align_right(cells[i], kWidths[i]);
    return text + "\n";
  };
  std::string text = line({"variant", "bytes", "bits/w", "perplexity ratio [95 %]", "bits/byte",
                           "top-1", "tokens/s [p10, p90]", "valid"});
  for (const DemoVariant& variant : result.variants) {
    const compress::QualityCard& card = variant.eval.card;
    const compress::Estimate& ratio = card.comparison->perplexity_ratio;
    const Spread& speed = variant.tokens_per_s;
    text += line(
        {variant.name, concat(variant.bytes), fixed(bits_per_weight(variant, result), 2),
         concat(fixed(ratio.value, 4), " [", fixed(ratio.low, 4), ", ", fixed(ratio.high, 4), "]"),
         fixed(card.bits_per_byte.value_or(0), 4),
         concat(fixed(100 * card.comparison->top1_agreement.value, 2), "%"),
         concat(fixed(speed.median, 0), " [", fixed(speed.p10, 0), ", ", fixed(speed.p90, 0), "]"),
         variant.verdict ? concat(fixed(100 * variant.verdict->valid_share(), 1), "%") : "-"});
  }
  if (const auto ratio = floor_ratio(result)) {
    text += "valid: sentences of its own stories that the grammar accepts, agreement included\n";
    text += concat("fp32 is at ", fixed(*ratio, 3), " times the entropy of these stories, ",
                   fixed(*result.floor_bits_per_byte, 4),
                   " bits per byte, below which no model can go\n");
  }
  text += concat("the original is unchanged: sha256 ", result.sha256_before.substr(0, 16),
                 " before and ", result.sha256_after.substr(0, 16), " after\n");
  return text + concat("report: ", escape_controls(result.report.string()), "\n");
}

}  // namespace hone::app
