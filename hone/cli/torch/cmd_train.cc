// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "hone/app/torch/memory_lm.h"
#include "hone/app/torch/memory_vision.h"
#include "hone/app/torch/train_lm.h"
#include "hone/app/torch/train_vision.h"
#include "hone/cli/command.h"
#include "hone/cli/interrupt.h"
#include "hone/cli/trace_options.h"
#include "hone/cli/validators.h"
#include "hone/core/check.h"
#include "hone/core/names.h"
#include "hone/core/text_format.h"

namespace hone::cli {
namespace {

struct TrainCommand {
  std::string config, data, init, teacher, out = "out";
  std::vector<std::string> set;
  double minutes = 0;
  bool resume = false, fresh = false, memory_report = false, find_batch_size = false;
};

// What the other verb trains.
template <class Config>
using OtherConfig =
    std::conditional_t<std::is_same_v<Config, task::LmConfig>, task::VisionConfig, task::LmConfig>;
template <class Config>
constexpr const char* kVerb = std::is_same_v<Config, task::LmConfig> ? "lm" : "vision or paco";

template <class Config>
bool is_config_of(const std::filesystem::path& path) {
  try {
    Config config;
    read_config(config, path);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The configuration that a run was started with. It names every key, so none counts as given,
// except those of a language model, which model.init would otherwise provide.
template <class Config>
void read_recorded(Config& config, const std::filesystem::path& path) {
  using Other = OtherConfig<Config>;
  if (!is_config_of<Config>(path) && is_config_of<Other>(path)) {
    fail_argument(path.parent_path().string(), concat("a run of train ", kVerb<Config>),
                  concat("a run of train ", kVerb<Other>));
  }
  read_config(config, path);
  std::erase_if(config.given, [](const std::string& key) {
    return !std::is_same_v<Config, task::LmConfig> || !key.starts_with("model.");
  });
}

// Later wins: defaults, the file (on resume without one: the run's own train.toml), --data, --init
// (model.init), --teacher (distill.teacher), --seed (trainer.seed), --set. An assignment that
// contradicts --init or --teacher is refused.
template <class Config>
Config config_of(const TrainCommand& options, const Context& context, Config config) {
  const std::filesystem::path recorded = std::filesystem::path(options.out) / "train.toml";
  if (!options.config.empty()) {
    read_config(config, options.config);
  } else if (options.resume && std::filesystem::exists(recorded)) {
    read_recorded(config, recorded);
  } else if (options.resume && app::holds_checkpoint(options.out)) {
    fail(ErrorCategory::NotFound, recorded.string(),
         "the configuration of the run to resume, or another by --config", "none");
  }
  if (options.resume) app::check_run_to_resume(options.out);
  if (!options.data.empty()) config.data.path = options.data;
  if (!options.init.empty()) config.model.init = options.init;
  if (!options.teacher.empty()) config.distill.teacher = options.teacher;
  if (context.common.seed) config.trainer.seed = static_cast<Index>(*context.common.seed);
  for (const std::string& assignment : options.set) set_config(config, assignment);
  HONE_CHECK(options.init.empty() || config.model.init == options.init, "model.init",
             "either --init or --set model.init", "both");
  HONE_CHECK(options.teacher.empty() || config.distill.teacher == options.teacher,
             "distill.teacher", "either --teacher or --set distill.teacher", "both");
  return config;
}

template <class Config>
app::TrainJob<Config> train_job(const TrainCommand& options, const Context& context,
                                const Config& config) {
  return {.config = config,
          .out = options.out,
          .resume = options.resume,
          .fresh = options.fresh,
          .minutes = options.minutes,
          .threads = context.common.threads,
          .stop = Interrupt::token()};
}

template <class Config>
app::MemoryJob<Config> memory_job(const TrainCommand& options, const Context& context,
                                  const Config& config) {
  return {
      .config = config, .threads = context.common.threads, .search_batch = options.find_batch_size};
}

// What the loss scale did, if losses were scaled.
void print_scale(const Json& amp) {
  const Json& average = amp.at("average_scale");
  if (average.is_null()) return;
  const auto number = [&](const char* key) { return amp.at(key).get<double>(); };
  std::printf(
      "loss scale: overflow in %.2f %% of steps, average %.6g, variance %.3g, stability %.4f",
      100 * number("overflow_rate"), number("average_scale"), number("scale_variance"),
      number("scale_stability"));
  const Json& advised = amp.at("recommended_scale");
  if (!advised.is_null()) std::printf(", recommended %.6g", advised.get<double>());
  std::printf(" (%s)\n", amp.at("precision").get<std::string>().c_str());
}

// Steps, rate and training loss; a figure that there is not is left out.
template <class Result>
void print_steps(const Result& result, const std::optional<double>& rate, const char* unit) {
  std::printf("%lld steps", static_cast<long long>(result.steps));
  if (result.skipped_steps > 0) {
    std::printf(", %lld of them skipped,", static_cast<long long>(result.skipped_steps));
  }
  std::printf(" in %.1f s", result.seconds);
  if (rate) std::printf(" (%.0f %s without validation and saving)", *rate, unit);
  std::printf(", %lld parameters\n", static_cast<long long>(result.parameters));
  print_scale(result.amp);
  if (result.train_loss) std::printf("training loss %.4f, ", *result.train_loss);
}

void print_distillation(const std::optional<app::Distillation>& learned) {
  if (!learned) return;
  std::printf("teacher: %lld parameters, %.2f times as many; same prediction for %.2f %%",
              static_cast<long long>(learned->teacher_parameters), learned->ratio(),
              100 * learned->agreement);
  if (learned->final_soft && learned->final_hard) {
    std::printf("; last losses: soft %.4f, hard %.4f", *learned->final_soft, *learned->final_hard);
  }
  std::printf("\n");
  if (!learned->control) return;
  std::printf("without the teacher: held-out loss %.4f nats", learned->control->val_loss);
  if (learned->control->val_accuracy) {
    std::printf(", accuracy %.2f %%", 100 * *learned->control->val_accuracy);
  }
  std::printf(", same prediction for %.2f %% (%s)\n", 100 * learned->control->agreement,
              escape_controls(learned->control->model.string()).c_str());
}

void print_lm(const app::TrainLmResult& result) {
  print_steps(result, result.tokens_per_s, "tokens/s");
  std::printf("held-out loss %.4f nats, %.4f bits per byte\n", result.val_loss,
              result.val_bits_per_byte);
  print_distillation(result.distillation);
  std::printf("model: %s\n", escape_controls(result.model.string()).c_str());
}

void print_vision(const app::TrainVisionResult& result) {
  print_steps(result, result.images_per_s, "images/s");
  std::printf("held-out loss %.4f nats, accuracy %.2f %% of %lld classes\n", result.val_loss,
              100 * result.val_accuracy, static_cast<long long>(result.classes));
  print_distillation(result.distillation);
  if (!result.guard.empty()) std::printf("guard against collapse: %s\n", result.guard.c_str());
  std::printf("model: %s\n", escape_controls(result.model.string()).c_str());
}

constexpr double kMiB = 1 << 20;  // the unit of trainer.max_memory_mb

// The columns that there are.
void print_parts(const trainer::MemoryParts* predicted, const trainer::MemoryParts* measured) {
  using trainer::MemoryParts;
  const auto print_row = [&](const char* name, auto print_cell) {
    std::printf("%-16s", name);
    if (predicted != nullptr) print_cell("predicted", *predicted);
    if (measured != nullptr) print_cell("measured", *measured);
    std::printf("\n");
  };
  print_row("", [](const char* title, const MemoryParts&) { std::printf(" %10s", title); });
  const auto print = [&](const char* name, auto part) {
    print_row(name, [&](const char*, const MemoryParts& parts) {
      std::printf(" %10.2f", static_cast<double>(part(parts)) / kMiB);
    });
  };
  print("weights", [](const MemoryParts& parts) { return parts.weights; });
  print("gradients", [](const MemoryParts& parts) { return parts.gradients; });
  print("optimizer state", [](const MemoryParts& parts) { return parts.state; });
  print("activations", [](const MemoryParts& parts) { return parts.activations; });
  print("workspace", [](const MemoryParts& parts) { return parts.workspace; });
  print("total", [](const MemoryParts& parts) { return parts.total(); });
}

void print_memory(const app::MemoryMeasurement& result, const std::string& samples,
                  const trainer::MemoryParts* predicted) {
  std::printf("%lld parameters, %lld %s a micro-batch; MiB of tensors\n",
              static_cast<long long>(result.parameters), static_cast<long long>(result.micro_batch),
              samples.c_str());
  print_parts(predicted, result.measured ? &*result.measured : nullptr);
  if (!result.measured) {
    std::printf("not measured: a step does not fit in the memory that is free\n");
    return;
  }
  std::printf("most in RAM, with program and data: %s\n",
              format_bytes(result.resident, ByteUnits::Binary).c_str());
  if (!result.search) return;
  const trainer::BatchSearch& search = *result.search;
  std::printf("largest trainer.micro_batch within %s: %s%lld (%s%zu steps tried)\n",
              format_bytes(search.limit_bytes, ByteUnits::Binary).c_str(),
              search.at_end ? "at least " : "", static_cast<long long>(search.batch),
              search.at_end ? "the search ends there, " : "", search.probes.size());
}

void run_lm(const TrainCommand& options, Context& context) {
  const auto config = config_of(options, context, task::LmConfig());
  if (options.memory_report || options.find_batch_size) {
    const app::MemoryLmResult result = app::memory_lm(memory_job(options, context, config));
    return context.finish(app::to_json(result), [&] {
      print_memory(result, concat("windows of ", result.positions, " tokens"),
                   result.predicted ? &*result.predicted : nullptr);
    });
  }
  const Interrupt interrupt;
  const app::TrainLmResult result = app::train_lm(train_job(options, context, config));
  context.finish(app::to_json(result), [&] { print_lm(result); });
}

void run_images(const TrainCommand& options, Context& context, const task::VisionConfig& start) {
  const task::VisionConfig config = config_of(options, context, start);
  HONE_CHECK(start.loss.method != "paco" || config.loss.method == "paco", "loss.method",
             "paco for train paco (train vision has the others)", config.loss.method);
  if (options.memory_report || options.find_batch_size) {
    const app::MemoryMeasurement result = app::memory_vision(memory_job(options, context, config));
    return context.finish(app::to_json(result), [&] { print_memory(result, "images", nullptr); });
  }
  const Interrupt interrupt;
  const app::TrainVisionResult result = app::train_vision(train_job(options, context, config));
  context.finish(app::to_json(result), [&] { print_vision(result); });
}

void run_vision(const TrainCommand& options, Context& context) {
  run_images(options, context, task::VisionConfig());
}

void run_paco(const TrainCommand& options, Context& context) {
  run_images(options, context, task::part_contrast_config());
}

struct Job {
  const char *name, *about, *data, *init, *teacher;  // without a teacher: null
  void (*run)(const TrainCommand&, Context&);
};

constexpr const char* kImageInit =
    "Start from these weights: safetensors file, or folder of a model or a run";

void add_job(CLI::App& verb, Context& context, const Job& made) {
  auto options = std::make_shared<TrainCommand>();
  CLI::App* job = verb.add_subcommand(made.name, made.about);
  job->add_option("--config", options->config, "TOML file (docs/config.md)");
  job->add_option(
      "--set", options->set,
      "Set a key=value, which overrides the file, --data and --seed, e.g. lr.peak=0.002");
  job->add_option("--data", options->data, made.data)->check(not_empty());
  job->add_option("--init", options->init, made.init)->check(not_empty());
  if (made.teacher != nullptr) {
    job->add_option("--teacher", options->teacher, made.teacher)->check(not_empty());
  }
  job->add_option("--out", options->out, "Folder of the run")
      ->check(not_empty())
      ->capture_default_str();
  CLI::Option* minutes =
      job->add_option("--minutes", options->minutes,
                      "Choose the number of steps, from a few measured steps, so that training "
                      "takes about this long before the validation on all held-out data")
          ->check(positive_number());
  CLI::Option* resume = job->add_flag("--resume", options->resume,
                                      "Continue from the newest complete checkpoint in --out")
                            ->excludes(minutes);
  job->add_flag("--fresh", options->fresh,
                "Train again even if --out has a run, and replace that run")
      ->excludes(resume);
  job->add_flag("--memory-report", options->memory_report,
                "Only print the memory that a training step takes")
      ->excludes(minutes);
  job->add_flag("--find-batch-size", options->find_batch_size,
                "Print the memory report and the largest trainer.micro_batch that fits in 0.9 of "
                "the free memory, or in trainer.max_memory_mb")
      ->excludes(minutes);
  add_trace_option(*job, context);
  job->callback([options, run = made.run, &context] { run(*options, context); });
}

}  // namespace

void add_train(CLI::App& program, Context& context) {
  CLI::App* verb = program.add_subcommand("train", "Train a model");
  verb->require_subcommand(1);
  add_job(*verb, context,
          {.name = "lm",
           .about = "Train a small language model and its tokenizer from scratch, or continue from "
                    "a trained model",
           .data = "Text file, folder of texts or JSON lines (default: embedded stories)",
           .init = "Start from this model and its tokenizer: Hugging Face folder, GGUF or llama2.c "
                   "file, or folder of a finished run",
           .teacher = "Learn from this model, too, and with its tokenizer (docs/guide-training.md)",
           .run = run_lm});
  add_job(*verb, context,
          {.name = "vision",
           .about = "Train an image classifier",
           .data = "Folder with MNIST's IDX files, CIFAR-10's batches, or one folder of images per "
                   "class; or leaves: synthetic leaf images (docs/guide-vision.md)",
           .init = kImageInit,
           .teacher = "Learn from this classifier, too: folder of a model or a run",
           .run = run_vision});
  add_job(*verb, context,
          {.name = "paco",
           .about = "Train a fine-grained image classifier with part contrast (PaCo-2)",
           .data = "Images as for train vision (docs/guide-paco.md)",
           .init = kImageInit,
           .teacher = nullptr,
           .run = run_paco});
}

}  // namespace hone::cli
