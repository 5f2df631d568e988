// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/bench_layers.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <stop_token>
#include <utility>

#include "hone/bench/synthetic_model.h"
#include "hone/bench/torch/bench_layer_step.h"
#include "hone/bench/torch/layer_contestants.h"
#include "hone/bench/torch/layer_plots.h"
#include "hone/core/check.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/core/text_format.h"
#include "hone/train/memory/device_memory.h"

namespace hone::bench {
namespace {

using torch::Tensor;

constexpr double kLeastOfGrid = 0.95;  // of bmm's time; a point below is slower for sure

// Layers past their break-even are flagged in their rows.
class QuietLayers {
 public:
  QuietLayers() : before_(nn::set_layer_warning([](std::string_view) {})) {}
  QuietLayers(const QuietLayers&) = delete;
  QuietLayers& operator=(const QuietLayers&) = delete;
  ~QuietLayers() { nn::set_layer_warning(std::move(before_)); }

 private:
  nn::LayerWarning before_;
};

// All contestants of one shape, and those that it cannot have.
struct Field {
  const LayerJob* job = nullptr;
  std::vector<LayerContestant> layers;
  std::vector<std::pair<std::string, std::string>> skipped;
  std::vector<std::pair<std::size_t, std::size_t>> by_formula;  // sketched layers and their bmm
};

// Fitting a grid of layers takes as long as measuring it.
void check_stop(const BenchRun& run) {
  if (run.options().stop.stop_requested()) {
    throw Error(ErrorCategory::Cancelled, "the bench was interrupted");
  }
}

Field make_field(const LayerPlan& plan, const LayerJob& job, std::uint64_t seed,
                 const BenchRun& run) {
  Field field{.job = &job, .layers = {}, .skipped = {}, .by_formula = {}};
  const LayerShape& shape = job.shape;
  const Index most_rank = std::ranges::max(job.ranks, {}, &LayerRank::rank).rank;
  LayerMaker maker(shape, plan, most_rank, seed);
  const auto add = [&](LayerContestant layer) {
    // Terms and low ranks of one product are one low-rank layer.
    const auto same = std::ranges::find(field.layers, layer.name, &LayerContestant::name);
    if (same == field.layers.end()) field.layers.push_back(std::move(layer));
  };
  for (const char* name : {"dense", "dense_hone"}) {
    if (!contains(plan.against, name)) continue;
    if (shape.is_conv() && std::string_view(name) == "dense_hone") {
      field.skipped.emplace_back(name, "hone's networks convolve by LibTorch");
    } else {
      add(maker.dense(name));
    }
  }
  const bool has_formula = contains(plan.against, "bmm") && !shape.is_conv();
  if (contains(plan.against, "bmm") && shape.is_conv()) {
    field.skipped.emplace_back("bmm", "the formula is that of linear layers");
  }
  for (const std::string& mode : plan.modes) {
    if (shape.is_conv() && mode.starts_with("frozen_")) {
      field.skipped.emplace_back(mode, "convolutions have no frozen form");
      continue;
    }
    for (const LayerRank& rank : job.ranks) {
      check_stop(run);
      const std::size_t before = field.layers.size();
      add(maker.factored(mode, rank));
      if (mode != "sketched" || !has_formula || field.layers.size() == before) continue;
      add(maker.bmm(rank));
      field.by_formula.emplace_back(before, before + 1);
    }
  }
  return field;
}

Json make_row_fields(const LayerContestant& layer, const LayerShape& shape, std::uint64_t seed) {
  Json fields = layer.facts;
  fields["shape"] = shape.name();
  fields["weight"] = concat("seeded Gaussian, seed ", seed);
  fields["weight_bytes"] = layer.weight_bytes;
  return fields;
}

// The end of a row's line in the table.
std::string note_of(const Json& fields) {
  std::string note = concat("error ", fields.at("rel_error").get<double>());
  if (fields.at("fit").is_string()) note += concat(" (", fields.at("fit").get<std::string>(), ")");
  note += concat(", ", fields.at("trainable_count").get<Index>(), " trainable, ",
                 fields.at("stored_count").get<Index>(), " stored");
  if (fields.at("break_even").is_number()) {
    note += concat(", ", fields.at("break_even").get<double>(), " of break-even");
  }
  return note + concat(", peak ", format_bytes(fields.at("peak_memory_bytes").get<Index>()),
                       " (predicted ",
                       format_bytes(fields.at("memory_predicted_bytes").get<Index>()), ")");
}

void add_memory_row(const LayerContestant& layer, const Field& field, Index batch,
                    std::uint64_t seed, BenchRun& run) {
  const LayerShape& shape = field.job->shape;
  const bool trains = !layer.trained.empty();
  const LayerMemory forward = read_memory(layer, shape, batch, false);
  const LayerMemory whole = trains ? read_memory(layer, shape, batch, true) : forward;
  Json row{{"case", concat(shape.name(), "/b", batch, "/memory")}, {"impl", layer.name}};
  row.update(make_row_fields(layer, shape, seed));
  row.update({{"batch", batch},
              {"pass", "memory"},
              {"flops", batch * (layer.forward_flops + (trains ? layer.backward_flops : 0))},
              {"activation_bytes", whole.activations},
              {"gradient_bytes", whole.gradients},
              {"peak_memory_bytes", whole.peak},
              {"memory_predicted_bytes", predicted_peak(layer, batch, trains)},
              {"forward_peak_bytes", forward.peak},
              {"forward_predicted_bytes", predicted_peak(layer, batch, false)}});
  const std::string note = concat("weights ", format_bytes(layer.weight_bytes), ", activations ",
                                  format_bytes(whole.activations), ", gradients ",
                                  format_bytes(whole.gradients), "; ", note_of(row));
  run.add_untimed(std::move(row), note);
}

void check_step(const BenchLayersOptions& options) {
  const auto lists = {options.shapes, options.convs,  options.modes,
                      options.fits,   options.passes, options.against};
  const bool is_alone = std::ranges::all_of(lists, &std::vector<std::string>::empty) &&
                        options.ranks.empty() && options.terms.empty() &&
                        options.low_ranks.empty() && options.grid.empty() && !options.cold &&
                        options.plots.empty();
  HONE_REQUIRE(is_alone, "bench layers", "Of a step, only a batch and the library can be chosen.");
}

// Evicts what a contestant left in the caches of LibTorch's threads, which also keeps them awake.
std::function<void()> make_flush(bool cold) {
  if (!cold) return {};
  const CpuInfo& cpu = cpu_info();
  const Index cache = std::max({cpu.last_cache_bytes, cpu.l3_bytes, cpu.l2_bytes, Index{1} << 22});
  return [buffer = at::zeros({4 * cache / static_cast<Index>(sizeof(float))})] {
    Tensor(buffer).add_(1);
  };
}

void add_ratios(const Field& field, const std::vector<std::size_t>& places,
                const BenchLayersOptions& options, BenchCase& bench_case) {
  std::vector<std::size_t> dense;
  constexpr auto kAbsent = static_cast<std::size_t>(-1);
  for (std::size_t i = 0; i < field.layers.size(); ++i) {
    const std::string& name = field.layers[i].name;
    if (places[i] != kAbsent && (name == "dense" || name == "dense_hone")) {
      dense.push_back(places[i]);
    }
  }
  GeometricMean by_formula{.name = "sketched / bmm", .pairs = {}, .least = kLeastOfGrid};
  for (std::size_t i = 0; i < field.layers.size(); ++i) {
    if (!field.layers[i].ours || places[i] == kAbsent) continue;
    if (!dense.empty()) bench_case.rivalries.push_back({places[i], dense});
  }
  for (const auto& [sketched, formula] : field.by_formula) {
    bench_case.rivalries.push_back({places[sketched], {places[formula]}});
    by_formula.pairs.emplace_back(places[sketched], places[formula]);
  }
  if (!options.grid.empty() && !by_formula.pairs.empty()) {
    bench_case.geometric_means.push_back(std::move(by_formula));
  }
}

void add_timed(const Field& field, Index batch, const std::string& pass,
               const BenchLayersOptions& options, BenchRun& run) {
  const LayerShape& shape = field.job->shape;
  const bool train = pass == "train";
  BenchCase bench_case;
  bench_case.name = concat(shape.name(), "/b", batch, "/", pass);
  bench_case.skipped = field.skipped;
  const Tensor x = layer_input(shape, batch, options.seed + 2).set_requires_grad(train);
  Tensor gradient;
  if (train) {
    const at::NoGradGuard no_grad;
    gradient = at::ones_like(field.layers.front().forward(x));
  }
  const auto flush = make_flush(options.cold);
  std::vector<std::size_t> places(field.layers.size(), static_cast<std::size_t>(-1));
  for (std::size_t i = 0; i < field.layers.size(); ++i) {
    const LayerContestant& layer = field.layers[i];
    if (train && layer.trained.empty()) {
      bench_case.skipped.emplace_back(layer.name, "frozen layers are not trained");
      continue;
    }
    places[i] = bench_case.contestants.size();
    const auto run_once = [&layer, x, gradient, train] {
      if (train) {
        run_train(layer, x, gradient);
      } else {
        run_forward(layer, x);
      }
    };
    bench_case.contestants.push_back({.name = layer.name, .run = run_once, .prepare = flush});
    bench_case.ours.push_back(layer.ours);
    Json fields = make_row_fields(layer, shape, options.seed);
    fields.update({{"batch", batch},
                   {"pass", pass},
                   {"cold", options.cold},
                   {"flops", batch * (layer.forward_flops + (train ? layer.backward_flops : 0))},
                   {"peak_memory_bytes", read_memory(layer, shape, batch, train).peak},
                   {"memory_predicted_bytes", predicted_peak(layer, batch, train)}});
    bench_case.notes.push_back(note_of(fields));
    bench_case.extra.push_back(std::move(fields));
  }
  add_ratios(field, places, options, bench_case);
  run.add(bench_case);
}

}  // namespace

void bench_layers(const BenchLayersOptions& options, BenchRun& run) {
  if (!options.step.empty()) {
    check_step(options);
    at::set_num_threads(options.threads > 0 ? options.threads : usable_cpus());
    model_io::Architecture architecture = shape_architecture(options.step);
    architecture.rope.pairing = model_io::RopePairing::HalfSplit;  // the one that is trained
    memory::run_in_memory("bench layers", [&] { bench_layer_step(architecture, options, run); });
    return;
  }
  const LayerPlan plan = plan_layers(options);
  if (!options.plots.empty()) check_plots_folder(options.plots);
  at::set_num_threads(options.threads > 0 ? options.threads : usable_cpus());
  const QuietLayers quiet;
  memory::run_in_memory("bench layers", [&] {
    for (const LayerJob& job : plan.jobs) {
      const Field field = make_field(plan, job, options.seed, run);
      for (const std::string& pass : plan.passes) {
        if (pass == "memory") {
          for (const Index batch : job.memory_batches) {
            for (const LayerContestant& layer : field.layers) {
              check_stop(run);
              add_memory_row(layer, field, batch, options.seed, run);
            }
          }
          continue;
        }
        for (const Index batch : job.batches) add_timed(field, batch, pass, options, run);
      }
    }
  });
  if (!options.plots.empty()) write_layer_plots(run.report(), options.plots);
}

}  // namespace hone::bench
