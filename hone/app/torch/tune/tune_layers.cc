// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/tune/tune_layers.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "hone/app/torch/train_run.h"
#include "hone/app/torch/tune/tune_report.h"
#include "hone/app/torch/tune/tuned_model.h"
#include "hone/compress/quality/block_bootstrap.h"
#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/folder_lock.h"
#include "hone/core/file/sha256.h"
#include "hone/core/log.h"
#include "hone/core/machine/machine_card.h"
#include "hone/core/names.h"
#include "hone/core/progress.h"
#include "hone/core/version.h"
#include "hone/data/leaves/leaves.h"
#include "hone/data/story_grammar.h"
#include "hone/measure/measure.h"
#include "hone/train/memory/device_memory.h"
#include "hone/train/surgery/layer_surgery.h"
#include "hone/train/surgery/layer_tree.h"
#include "hone/train/tuner/layer_fitter.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;

constexpr const char *kSearch = "search.json", *kBegin = "tune.json", *kResult = "layers.json";
constexpr const char* kFormat = "hone tune 3";
constexpr double kSpeedSeconds = 2;  // of one measurement, at most, beyond ten runs

// SHA-256 of all parameters and buffers.
std::string hash_of(const torch::nn::Module& module) {
  std::string hashes;
  const auto add = [&hashes](const std::vector<NamedTensor>& tensors) {
    for (const auto& [name, value] : tensors) {
      const torch::Tensor whole = value.detach().contiguous();
      hashes += concat(
          name, " ",
          sha256_hex(std::span(static_cast<const std::byte*>(whole.data_ptr()), whole.nbytes())),
          "\n");
    }
  };
  add(nn::parameters_by_path(module));
  add(nn::buffers_by_path(module));
  return sha256_hex_of_text(hashes);
}

ModelFigures sizes_of(const torch::nn::Module& module) {
  ModelFigures out;
  for (const auto& [name, value] : nn::parameters_by_path(module)) {
    out.bytes += static_cast<Index>(value.nbytes());
    out.parameters += value.numel();
  }
  for (const auto& [name, value] : nn::buffers_by_path(module)) {
    out.bytes += static_cast<Index>(value.nbytes());
  }
  return out;
}

std::vector<double> qualities_of(TunedModel& model, tuner::QualityMetric metric, Index repeats) {
  std::vector<double> out;
  for (Index repeat = 0; repeat < repeats; ++repeat) {
    const auto [first, count] = samples_of_repeat(model, repeat, repeats, 1);
    out.push_back(model.quality(metric, first, count));
  }
  return out;
}

// Qualities of the model on up to 20 parts of the samples that a search does not see, in order.
std::vector<double> held_back_qualities(TunedModel& model, tuner::QualityMetric metric) {
  constexpr Index kMostParts = 20;
  const Index held = held_back_samples(model), begin = model.samples() - held;
  const Index parts = std::min(kMostParts, held);
  std::vector<double> out;
  for (Index part = 0; part < parts; ++part) {
    const Index first = held * part / parts, end = held * (part + 1) / parts;
    out.push_back(model.quality(metric, begin + first, end - first));
  }
  return out;
}

tune::QualityChange change_of(std::span<const double> unchanged, std::span<const double> model) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < model.size(); ++i) differences.push_back(model[i] - unchanged[i]);
  constexpr double kTwoSided = 0.9;  // whose lower end is that of a one-sided interval of 95 %
  const auto interval = compress::bootstrap_mean(differences, {.block = 1, .coverage = kTwoSided});
  return {interval.mean, interval.low};
}

void check_metric(const TunedModel& model, tuner::QualityMetric metric) {
  HONE_REQUIRE(model.has(metric), "quality.metric",
               metric == tuner::QualityMetric::Accuracy
                   ? "A language model is measured by perplexity or loss."
                   : "A classifier is measured by accuracy or loss.");
}

Json environment() {
  Json json = describe_machine();
  json["threads"] = at::get_num_threads();
  json["hone"] = version_text();
  json["torch"] = torch_version();
  return json;
}

// Qualities of the unchanged model.
struct Unchanged {
  std::vector<double> samples;    // one for each repeat
  std::vector<double> held_back;  // held_back_qualities()
};

std::vector<double> read_qualities(const Json& json, const char* key, const fs::path& path) {
  const bool has_samples =
      json.is_object() && json.contains(key) && json[key].is_array() &&
      std::ranges::all_of(json[key], [](const Json& one) { return one.is_number(); });
  if (!has_samples)
    fail_corrupt(path.string(), "The file has no qualities of the unchanged model.");
  return json[key].get<std::vector<double>>();
}

// Each repeat needs samples of its own, and calibration needs another.
void check_samples(const TunedModel& model, const std::string& data, Index repeats) {
  const Index calibration = model.calibration_samples();
  const Index held = held_back_samples(model);
  const Index each = (model.samples() - calibration - held) / repeats;
  const auto name = model.sample_name();
  if (calibration == 0 || each == 0) {
    Index least = repeats + 1;
    while (least - count_calibration(least, least) < repeats) ++least;
    fail_argument(data,
                  concat(least, " ", name, " (search.repeats = ", repeats,
                         ", and an eighth for calibration)"),
                  concat(model.samples()));
  }
  if (held == 0) {
    log_warning(
        concat("tune: there are too few ", name,
               " to hold some back, and a model that a search finds may be worse on others."));
  }
  constexpr Index kFew = 16;
  if (each < kFew) {
    log_warning(concat("tune: each quality is measured on ", each, " ", name,
                       " only, and may differ on others by more than the limit allows."));
  }
}

// The qualities of the unchanged model: those that the folder records, of a search with the same
// facts, or those that `measure` returns, which are then recorded.
Unchanged begin_search(const fs::path& out, Json facts, const std::function<Unchanged()>& measure) {
  const fs::path path = out / kBegin;
  std::error_code ignored;
  if (fs::exists(path, ignored)) {
    const Json before = read_json_file(path);
    Unchanged recorded{read_qualities(before, "unchanged", path),
                       read_qualities(before, "unchanged_held_back", path)};
    constexpr std::pair<const char*, const char*> kFacts[] = {{"format", "of another format"},
                                                              {"space", "with another space"},
                                                              {"seed", "with another seed"},
                                                              {"model_sha256", "of another model"},
                                                              {"data_sha256", "on other data"}};
    for (const auto& [key, what] : kFacts) {
      HONE_REQUIRE(
          before.contains(key) && before[key] == facts[key], out.string(),
          concat("The folder has a search ", what, "; take another folder, or remove this one."));
    }
    return recorded;
  }
  const bool is_new = std::ranges::all_of(fs::directory_iterator(out), [](const auto& entry) {
    return entry.path().filename() == FolderLock::kName;
  });
  HONE_REQUIRE(is_new, out.string(), "The folder has files of something else; take another one.");
  Unchanged measured = measure();
  facts["unchanged"] = measured.samples;
  facts["unchanged_held_back"] = measured.held_back;
  write_json_file(path, facts);
  return measured;
}

// Times runs of models.
class ModelTimer {
 public:
  explicit ModelTimer(const std::stop_token& stop) : stop_(stop) {}

  double seconds(TunedModel& model, Index repeat) {
    check_not_cancelled(stop_);
    const std::vector<Contestant> contestants{
        {.name = "model", .run = [&model] { model.run_once(); }}};
    const Measurement measured =
        measurer_->measure(contestants, {.max_seconds = kSpeedSeconds,
                                         .seed = static_cast<std::uint64_t>(repeat) + 1,
                                         .warns_of_drift = false,
                                         .stop = stop_});
    ++timings_;
    if (measured.drift > measure::kDriftLimit) ++drifted_;
    return measurer_->spread(measured.seconds[0]).median;
  }

  // Compares the model that `apply` makes with the one that `restore` makes, in turns.
  tune::CostComparison compare(TunedModel& model, const std::function<void()>& restore,
                               const std::function<void()>& apply,
                               double max_seconds = 2 * kSpeedSeconds) {
    const auto once = [&model] { model.run_once(); };
    const std::vector<Contestant> contestants{
        {.name = "unchanged", .run = once, .prepare = restore},
        {.name = "model", .run = once, .prepare = apply}};
    const Measurement measured =
        measurer_->measure(contestants, {.max_seconds = max_seconds, .stop = stop_});
    return {measurer_->spread(measured.seconds[0]).median,
            measurer_->spread(measured.seconds[1]).median, measurer_->speedup(measured, 1, 0)};
  }

  void warn_of_drift() const {
    if (drifted_ == 0) return;
    log_warning(concat("During ", drifted_, " of ", timings_,
                       " measurements the speed of this machine changed by more than ",
                       std::round(100 * measure::kDriftLimit),
                       " %; it may have chosen another model than an idle machine would have."));
  }

 private:
  std::stop_token stop_;
  std::unique_ptr<Measurer> measurer_ = measure::make_measurer();
  Index timings_ = 0, drifted_ = 0;  // measurements, and those of them that drifted
};

// The folder of a search, from the first checks to its result.
class TuneRun {
 public:
  explicit TuneRun(const TuneJob& job) : job_(job), space_(tuner::read_tune_space(job.space)) {
    check_output_spares(job.out, job.model);
    check_output_outside(job.out, job.model);
    check_output_excludes(job.out, job.space);
    if (job.data != data::kLeavesName && job.data != data::kStoriesName) {
      check_output_spares(job.out, job.data);
      check_output_outside(job.out, job.data);
    }
    if (job.seed) space_.seed = *job.seed;
    lock_.emplace(job.out);
    prepare_libtorch(job.threads);
    model_ = open_tuned_model({.model = job.model,
                               .data = job.data,
                               .seed = space_.seed,
                               .least_context = space_.speed ? space_.speed->tokens.value_or(0) : 0,
                               .stop = job.stop});
    check_metric(*model_, space_.quality.metric);
    check_samples(*model_, job.data, space_.repeats);
    if (space_.speed) model_->prepare_run(*space_.speed);
    groups_ = tuner::make_groups(model_->module(), space_);
    for (const auto& [path, reason] : groups_.skipped) {
      log_info(concat("tune: layer ", escape_controls(path), " is skipped. ", reason));
    }
  }

  TuneOutcome run() {
    begin();
    fitter_.emplace(model_->module(), groups_.groups, space_.seed, [this] { model_->calibrate(); });
    fitter_->plan(groups_.groups, space_.plan_error);
    unchanged_layers_ = nn::snapshot(model_->module());
    const tune::LayerSearchResult result = search();
    TuneReport report = report_of(result);
    Json document = {{"format", kFormat},   {"model", job_.model.string()},
                     {"data", job_.data},   {"data_sha256", model_->data_hash()},
                     {"seed", space_.seed}, {"repeats", space_.repeats}};
    document.update(to_json(report));
    document["search"] = tune::to_json(result);
    document["environment"] = environment();
    write_json_file(job_.out / kResult, document);
    return {document, to_text(report), report.is_feasible};
  }

 private:
  // Records what the search is of, with the qualities of the unchanged model; or compares with what
  // an earlier run recorded.
  void begin() {
    const Json facts = {{"format", kFormat},
                        {"space", space_.text},
                        {"seed", space_.seed},
                        {"model_sha256", hash_of(model_->module())},
                        {"data_sha256", model_->data_hash()}};
    unchanged_ = begin_search(job_.out, facts, [this] {
      Unchanged measured{qualities_of(*model_, space_.quality.metric, space_.repeats),
                         held_back_qualities(*model_, space_.quality.metric)};
      HONE_REQUIRE(std::isfinite(mean_of(measured.samples)), job_.model.string(),
                   "The unchanged model has no finite quality on these data.");
      return measured;
    });
    if (std::ssize(unchanged_.samples) != space_.repeats) {
      fail_corrupt((job_.out / kBegin).string(), concat(space_.repeats, " repeats"),
                   concat(unchanged_.samples.size()));
    }
  }

  std::optional<double> least_quality() const {
    return space_.quality.least_quality(mean_of(unchanged_.samples));
  }

  void apply(std::span<const tune::LayerChoice> choices) {
    for (const tune::LayerChoice& choice : choices) {
      nn::replace(model_->module(), choice.layer, fitter_->fit(choice.layer, choice.point));
    }
  }
  void restore() { nn::restore(unchanged_layers_); }

  double quality(double resource, Index repeat) {
    if (!is_changed_ && resource == 1) {
      return unchanged_.samples[static_cast<std::size_t>(repeat)];
    }
    const auto [first, count] = samples_of_repeat(*model_, repeat, space_.repeats, resource);
    return model_->quality(space_.quality.metric, first, count);
  }

  // The cost of the model as it is now: seconds of a run, or bytes. Seconds are measured in turns
  // with the unchanged model, as the machine's speed may drift over the hours of a search.
  double cost(Index repeat, double unchanged) {
    if (!space_.speed) return static_cast<double>(sizes_of(model_->module()).bytes);
    if (!is_changed_) return timer_.seconds(*model_, repeat);
    const nn::Snapshot changed = nn::snapshot(model_->module());
    const auto replace_again = [&changed] { nn::restore(changed); };
    const tune::CostComparison compared = timer_.compare(
        *model_, [this] { restore(); }, replace_again, kSpeedSeconds);
    replace_again();
    return unchanged / compared.ratio.ratio;
  }

  tune::QualityChange held_back() {
    return change_of(unchanged_.held_back, held_back_qualities(*model_, space_.quality.metric));
  }

  tune::LayerSearchResult search() {
    Progress progress("measuring models", 0, "models");
    tune::LayerCallbacks callbacks{
        .apply =
            [&](std::span<const tune::LayerChoice> choices) {
              is_changed_ = true;
              apply(choices);
            },
        .restore =
            [&] {
              restore();
              is_changed_ = false;
            },
        .quality = [&](double resource, Index repeat) { return quality(resource, repeat); },
        .cost = [&](Index repeat, double unchanged) { return cost(repeat, unchanged); },
        .was_executed =
            [&](const std::string& layer) { return nn::was_executed(model_->module(), layer); },
        .progress =
            [&](Index measured, std::optional<Index> planned) {
              progress.set_total(planned.value_or(0));
              progress.update(measured);
            }};
    if (!unchanged_.held_back.empty()) callbacks.held_back = [this] { return held_back(); };
    if (space_.speed) {
      callbacks.compare = [&](std::span<const tune::LayerChoice> choices) {
        return timer_.compare(
            *model_, [this] { restore(); }, [&] { apply(choices); });
      };
    }
    const tune::LayerSearchResult result = tune::search_layers(groups_.groups, callbacks,
                                                               {.method = space_.method,
                                                                .least_quality = least_quality(),
                                                                .repeats = space_.repeats,
                                                                .seed = space_.seed,
                                                                .log = job_.out / kSearch});
    timer_.warn_of_drift();
    return result;
  }

  // Sets the speeds that were measured of a model; those of a comparison replace that of `before`.
  void set_speeds(const tune::LayerEvaluation& evaluation, ModelFigures& own,
                  TuneReport& report) const {
    if (!space_.speed) return;
    if (!evaluation.cost.empty()) own.runs_per_s = 1 / mean_of(evaluation.cost);
    if (const auto& compared = evaluation.comparison) {
      report.before.runs_per_s = 1 / compared->unchanged;
      own.runs_per_s = 1 / compared->model;
      report.speedup = compared->ratio;
    }
  }

  // Figures of the result, with the model written if it is feasible.
  TuneReport report_of(const tune::LayerSearchResult& result) {
    TuneReport report{.goal = space_.quality,
                      .least_quality = least_quality(),
                      .is_timed = space_.speed.has_value()};
    report.is_feasible = result.model.has_value();
    report.skipped = groups_.skipped;
    report.before = sizes_of(model_->module());
    report.before.quality = result.unchanged.quality;
    set_speeds(result.unchanged, report.before, report);
    const auto& shown = result.model ? result.model : result.nearest;
    if (!shown) return report;
    for (const tune::LayerChoice& choice : shown->choices) {
      report.layers.push_back(fitter_->describe(choice.layer, choice.point));
    }
    apply(shown->choices);
    report.after = sizes_of(model_->module());
    report.after->quality = shown->quality;
    if (shown->held_back) report.held_back = {mean_of(unchanged_.held_back), *shown->held_back};
    set_speeds(*shown, *report.after, report);
    report.tree = nn::module_tree(model_->module());
    if (result.model) {
      const fs::path folder = job_.out / "model";
      report.model_folder = folder.string();
      model_->write(folder);
    }
    restore();
    return report;
  }

  TuneJob job_;
  tuner::TuneSpace space_;
  std::optional<FolderLock> lock_;
  std::unique_ptr<TunedModel> model_;
  tuner::TuneGroups groups_;
  std::optional<tuner::LayerFitter> fitter_;
  nn::Snapshot unchanged_layers_;
  Unchanged unchanged_;
  bool is_changed_ = false;
  ModelTimer timer_{job_.stop};
};

// What layers.json says of the model next to it.
struct Recorded {
  tuner::QualityGoal goal;
  double least_quality = 0;
  // On the samples held back; nothing if there were none.
  std::optional<double> least_held_back;
  Index repeats = 1;
  std::uint64_t seed = 0;
  std::string data_sha256;
};

Recorded read_recorded(const fs::path& path) {
  const Json json = read_json_file(path);
  const auto field = [&](const char* key, bool (Json::*is_type)() const noexcept) -> const Json& {
    if (!json.is_object() || !json.contains(key) || !(json[key].*is_type)()) {
      fail_corrupt(path.string(), concat("The file has no valid '", key, "'."));
    }
    return json[key];
  };
  if (field("format", &Json::is_string) != kFormat) {
    fail_corrupt(path.string(), "The file is not a result of hone tune.");
  }
  HONE_REQUIRE(field("feasible", &Json::is_boolean).get<bool>(), path.string(),
               "The search was infeasible and wrote no model that could be checked.");
  HONE_REQUIRE(!json.contains("least_quality") || !json["least_quality"].is_null(), path.string(),
               "The search had no limit of quality that a model could be checked against.");
  Recorded out;
  const auto metric = field("metric", &Json::is_string).get<std::string>();
  for (const auto own : {tuner::QualityMetric::Perplexity, tuner::QualityMetric::Loss,
                         tuner::QualityMetric::Accuracy}) {
    if (name_of(own) == metric) out.goal.metric = own;
  }
  out.least_quality = field("least_quality", &Json::is_number).get<double>();
  if (const Json& held = json.value("held_back", Json()); !held.is_null()) {
    if (!held.is_object() || !held.contains("least_quality") ||
        !held["least_quality"].is_number()) {
      fail_corrupt(path.string(), "The file has no valid 'held_back'.");
    }
    out.least_held_back = held["least_quality"].get<double>();
  }
  out.repeats = field("repeats", &Json::is_number_integer).get<Index>();
  if (out.repeats < 1 || out.repeats > tuner::kMostRepeats || name_of(out.goal.metric) != metric) {
    fail_corrupt(path.string(), "The metric or the number of repeats is not valid.");
  }
  out.seed = field("seed", &Json::is_number_unsigned).get<std::uint64_t>();
  out.data_sha256 = field("data_sha256", &Json::is_string).get<std::string>();
  return out;
}

TuneOutcome check(const TuneJob& job) {
  std::error_code ignored;
  if (!fs::exists(job.out / kResult, ignored)) {
    fail(ErrorCategory::NotFound, job.out.string(),
         concat("the folder of a finished search, with ", kResult), "another folder");
  }
  const Recorded recorded = read_recorded(job.out / kResult);
  prepare_libtorch(job.threads);
  const auto model = open_tuned_model(
      {.model = job.out / "model", .data = job.data, .seed = recorded.seed, .stop = job.stop});
  check_metric(*model, recorded.goal.metric);
  // The search has seen no sample of other data.
  const bool is_other = model->data_hash() != recorded.data_sha256;
  const bool holds_back = !is_other && recorded.least_held_back.has_value();
  const std::vector<double> samples =
      holds_back ? held_back_qualities(*model, recorded.goal.metric)
                 : qualities_of(*model, recorded.goal.metric, recorded.repeats);
  const double quality = mean_of(samples);
  const double least = holds_back ? *recorded.least_held_back : recorded.least_quality;
  TuneOutcome out;
  out.is_met = quality >= least;  // false for NaN
  out.document = {{"metric", std::string(name_of(recorded.goal.metric))},
                  {"value", recorded.goal.figure(quality)},
                  {"limit", recorded.goal.figure(least)},
                  {"quality", quality},
                  {"least_quality", least},
                  {"samples", samples},
                  {"held_back", holds_back},
                  {"other_data", is_other},
                  {"met", out.is_met}};
  out.text = concat(figure_text(recorded.goal, quality), ", ", out.is_met ? "within" : "beyond",
                    " the limit: ", figure_text(recorded.goal, least),
                    holds_back ? " on the samples held back\n"
                    : is_other ? ", which was measured on other data\n"
                               : "\n");
  return out;
}

}  // namespace

TuneOutcome tune_layers(const TuneJob& job) {
  return memory::run_in_memory("tune", [&] { return TuneRun(job).run(); });
}

TuneOutcome check_tuned(const TuneJob& job) {
  return memory::run_in_memory("tune", [&] { return check(job); });
}

}  // namespace hone::app
