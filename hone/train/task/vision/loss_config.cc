// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/loss_config.h"

#include <algorithm>
#include <array>
#include <utility>

#include "hone/core/check.h"
#include "hone/kernels/paco/assignment.h"
#include "hone/train/paco/model.h"

namespace hone::task {
namespace {

using kernels::AssignmentMethod;
using kernels::MineMode;

constexpr auto kMethods = std::to_array<std::string_view>({"ce", "supcon", "triplet", "paco"});
constexpr auto kOnCollapse = std::to_array<std::string_view>({"off", "warn", "stop"});
constexpr auto kPresets = std::to_array<std::string_view>({"exact", "compat", "robust", "none"});

template <class Enum>
struct Choice {
  std::string_view name;
  Enum value;
};
template <class Enum, std::size_t n>
Enum choose(std::string_view key, std::string_view value, const Choice<Enum> (&choices)[n]) {
  std::array<std::string_view, n> names;
  for (std::size_t i = 0; i < n; ++i) names[i] = choices[i].name;
  check_choice(key, value, names);
  return std::ranges::find(choices, value, &Choice<Enum>::name)->value;
}

// As the method was published, with the constants of its optimized code.
constexpr auto kCompat = std::to_array<std::string_view>(
    {"paco.ce_weight=attached", "paco.ce_views=mean", "paco.pool=one_image",
     "paco.mask_owner=false", "paco.mask_class=false", "paco.screen_top_m=32",
     "paco.delta=absolute", "paco.delta_floor=1.11e-3", "paco.match_floor=1.01e-3",
     "paco.distance_scale=none", "paco.prototype_init=identity", "paco.soc_scale=none",
     "paco.suppression=fraction", "paco.repeat_peaks=true", "loss.label_smoothing=0",
     "trainer.clip_norm=0", "lr.warm_up_steps=0"});
constexpr auto kRobust = std::to_array<std::string_view>(
    {"paco.ce_weight=off", "paco.pooled=0.5", "paco.hinge=softplus"});

void add_part_entries(const EntryAdder& add, PacoConfig& paco) {
  add("paco.preset", &paco.preset,
      "exact: the defaults; compat: as the method was published; robust: one metric for all "
      "images in part (paco.pooled = 0.5), softplus, no weights of images; none: the keys as they "
      "are. Sets the keys that are not given");
  add("paco.parts", &paco.parts, "parts of an image, K");
  add("paco.dim", &paco.dim, "dimension of a part after its projection");
  add("paco.caps", &paco.caps, "reduce paco.parts to 4 and paco.dim to 64, with a warning");
  add("paco.window", &paco.window,
      "side, in cells of the map, of the window whose mean is a part; odd");
  add("paco.stage", &paco.stage, "map that parts are taken from: last, penultimate");
  add("paco.joint_views", &paco.joint_views,
      "both views are one batch to BatchNorm instead of two");
  add("paco.saliency", &paco.saliency,
      "what parts are peaks of: attention; norm of the features, for maps of both signs");
  add("paco.suppression", &paco.suppression,
      "how far around a peak no other peak is taken: window, half of paco.window; fraction, a "
      "share of the map");
  add("paco.suppression_fraction", &paco.suppression_fraction, "that fraction of the map's side");
  add.ignored_if(paco.suppression == "window", "paco.suppression = window");
  add("paco.repeat_peaks", &paco.repeat_peaks,
      "where all cells are suppressed, the first cell is a peak again, instead of the best cell "
      "that is none");
  add("paco.refresh_every", &paco.refresh_every,
      "the peaks of an image are searched at one of this many visits and stay where they are in "
      "the image on the others; 1: at every visit; above 1 on the CPU only");
}

// The same keys, but of a term of the loss that is not computed with a weight of 0.
EntryAdder with_weight(const EntryAdder& add, std::string_view name, double weight) {
  const bool is_off = weight == 0 && add.ignored_by.empty();
  return {add.entries, is_off ? concat(name, " = 0") : add.ignored_by};
}

void add_contrast_entries(const EntryAdder& add_all, PacoConfig& paco) {
  add_all("paco.lambda_pac", &paco.lambda_pac, "weight of part contrast; 0: it is not computed");
  const EntryAdder add = with_weight(add_all, "paco.lambda_pac", paco.lambda_pac);
  add("paco.alpha", &paco.alpha, "margin of part contrast, in units of its distances");
  add("paco.mining", &paco.mining,
      "the negative of an anchor: semi_hard, the nearest part beyond the positive, or the nearest "
      "where there is none; hardest, the nearest");
  add("paco.screen_top_m", &paco.screen_top_m,
      "only this many parts with the largest cosine compete; 0: all");
  add("paco.pool", &paco.pool,
      "where negatives come from: distinct, all parts of the batch; one_image, those of one other "
      "image that is drawn for each image");
  add("paco.mask_owner", &paco.mask_owner, "parts of the anchor's image are no negatives");
  add("paco.mask_class", &paco.mask_class, "parts of the anchor's class are no negatives");
  add("paco.hinge", &paco.hinge, "relu: max(0, x); softplus: ln(1 + exp x)");
  add("paco.distance_scale", &paco.distance_scale,
      "distances are divided by the root of paco.dim: sqrt_dim; or by nothing: none");
  const std::string pooled = paco.pooled > 0 ? concat("paco.pooled = ", paco.pooled) : "";
  add("paco.delta", &paco.delta,
      "what the diagonal of an image's metric gets: absolute, paco.delta_floor; relative, "
      "paco.rho times the mean variance of a dimension, and at least that floor; shrink, their "
      "sum, and the covariance times 1 - paco.rho");
  add.ignored_if(!pooled.empty(), pooled);
  add("paco.delta_floor", &paco.delta_floor,
      "variance, in units of the parts; with paco.pooled, the least on the diagonal of the batch's "
      "mean covariance");
  add("paco.match_floor", &paco.match_floor, "the same while parts are matched; 0: equal to it");
  add.ignored_if(!pooled.empty(), pooled);
  add("paco.rho", &paco.rho, "share of paco.delta");
  add.ignored_if(!pooled.empty(), pooled);
  add.ignored_if(paco.delta == "absolute", "paco.delta = absolute");
  add("paco.pooled", &paco.pooled,
      "share, 0 to 1, of the batch's mean covariance in the metric of each image, instead of "
      "paco.delta");
  add("paco.metric_grad", &paco.metric_grad, "metrics of images have a gradient");
  add("paco.match_metric", &paco.match_metric,
      "by what parts of two views are matched after the warm-up: mahalanobis, cosine");
  add("paco.warm_up_epochs", &paco.warm_up_epochs, "passes over the images with cosine matching");
  add.ignored_if(paco.match_metric == "cosine", "paco.match_metric = cosine");
  add("paco.solver", &paco.solver,
      "of the matching: auto, table (up to 7 parts), hungarian, greedy, sinkhorn");
}

void add_soc_entries(const EntryAdder& add_all, PacoConfig& paco) {
  add_all("paco.eta_soc", &paco.eta_soc,
          "weight of second-order alignment; 0: it is not computed, and covariances of classes are "
          "not kept up");
  const EntryAdder add = with_weight(add_all, "paco.eta_soc", paco.eta_soc);
  add("paco.soc_metric", &paco.soc_metric,
      "distance of covariances: frobenius, stein, log_euclidean");
  add("paco.soc_scale", &paco.soc_scale,
      "what frobenius is divided by: trace, the squared mean trace of both covariances, so that "
      "the scale of features does not matter; none, as published");
  add.ignored_if(paco.soc_metric != "frobenius", concat("paco.soc_metric = ", paco.soc_metric));
  add("paco.soc_epsilon", &paco.soc_epsilon, "added to the diagonal of these covariances");
  add("paco.beta", &paco.beta, "weight of the distance to the covariance of the class");
  add("paco.prototype", &paco.prototype, "that covariance: full, diagonal, off");
  add("paco.prototype_init", &paco.prototype_init,
      "a class before its first image: skip, no term; identity");
  add.ignored_if(paco.prototype == "off", "paco.prototype = off");
  add("paco.prototype_momentum", &paco.prototype_momentum, "of its moving average, 0 to 1");
  add.ignored_if(paco.prototype == "off", "paco.prototype = off");
}

void add_ce_entries(const EntryAdder& add, PacoConfig& paco) {
  add("paco.ce_weight", &paco.ce_weight,
      "weights of images in the cross entropy by the norm of their parts: detached, constants of "
      "mean 1; attached, with a gradient, as published; off");
  add("paco.ce_views", &paco.ce_views,
      "cross entropy is that of each view, or of the mean of their features, as published: each, "
      "mean");
  add("paco.gamma", &paco.gamma, "share of these weights, 0 to 1");
  add.ignored_if(paco.ce_weight == "off", "paco.ce_weight = off");
}

paco::PacoLossOptions loss_options(const PacoConfig& paco) {
  using namespace hone::paco;
  PacoLossOptions to;
  to.alpha = paco.alpha;
  to.mining = choose<MineMode>("paco.mining", paco.mining,
                               {{"semi_hard", MineMode::SemiHard}, {"hardest", MineMode::Hardest}});
  to.screen_top_m = paco.screen_top_m;
  to.mask_owner = paco.mask_owner;
  to.mask_class = paco.mask_class;
  to.hinge = choose<Hinge>("paco.hinge", paco.hinge,
                           {{"relu", Hinge::Relu}, {"softplus", Hinge::Softplus}});
  to.distance_scale =
      choose<DistanceScale>("paco.distance_scale", paco.distance_scale,
                            {{"sqrt_dim", DistanceScale::SqrtDim}, {"none", DistanceScale::None}});
  to.pool = choose<NegativePool>(
      "paco.pool", paco.pool,
      {{"distinct", NegativePool::Distinct}, {"one_image", NegativePool::OneImage}});
  to.metric = {.delta = choose<DeltaMode>("paco.delta", paco.delta,
                                          {{"relative", DeltaMode::Relative},
                                           {"absolute", DeltaMode::Absolute},
                                           {"shrink", DeltaMode::Shrink}}),
               .floor = paco.delta_floor,
               .rho = paco.rho,
               .pooled = paco.pooled,
               .grad = paco.metric_grad};
  to.match = {.metric = choose<MatchMetric>(
                  "paco.match_metric", paco.match_metric,
                  {{"mahalanobis", MatchMetric::Mahalanobis}, {"cosine", MatchMetric::Cosine}}),
              .warmup_epochs = paco.warm_up_epochs};
  to.match_floor = paco.match_floor;
  to.solver = choose<AssignmentMethod>("paco.solver", paco.solver,
                                       {{"auto", AssignmentMethod::Auto},
                                        {"table", AssignmentMethod::Table},
                                        {"hungarian", AssignmentMethod::Hungarian},
                                        {"greedy", AssignmentMethod::Greedy},
                                        {"sinkhorn", AssignmentMethod::Sinkhorn}});
  to.soc_metric = choose<SocMetric>("paco.soc_metric", paco.soc_metric,
                                    {{"frobenius", SocMetric::Frobenius},
                                     {"stein", SocMetric::Stein},
                                     {"log_euclidean", SocMetric::LogEuclidean}});
  to.soc_scale = choose<SocScale>("paco.soc_scale", paco.soc_scale,
                                  {{"trace", SocScale::Trace}, {"none", SocScale::None}});
  to.soc_epsilon = paco.soc_epsilon;
  to.beta = paco.beta;
  to.prototypes = choose<Prototypes>(
      "paco.prototype", paco.prototype,
      {{"full", Prototypes::Full}, {"diagonal", Prototypes::Diagonal}, {"off", Prototypes::Off}});
  to.prototype_init =
      choose<PrototypeInit>("paco.prototype_init", paco.prototype_init,
                            {{"skip", PrototypeInit::Skip}, {"identity", PrototypeInit::Identity}});
  to.prototype_momentum = paco.prototype_momentum;
  return to;
}

}  // namespace

void add_entries(ConfigEntries& entries, LossConfig& loss) {
  const EntryAdder add{entries};
  add("loss.method", &loss.method,
      "ce: cross entropy; supcon, triplet: and supervised contrast or batch-hard triplets of the "
      "features of a ResNet; paco: and part contrast (hone train paco)");
  add("loss.views", &loss.views,
      "1 or 2 views of each image in a step, each with its own augmentation");
  add.ignored_if(loss.method == "paco", "loss.method = paco, which takes 2");
  add("loss.label_smoothing", &loss.label_smoothing,
      "share of a target that is spread over all classes, 0 to 1");
  const std::string own = concat("loss.method = ", loss.method);
  const bool is_metric = loss.method == "supcon" || loss.method == "triplet";
  add("loss.aux_weight", &loss.aux_weight, "weight of supcon or triplet beside cross entropy");
  add.ignored_if(!is_metric, own);
  add("loss.temperature", &loss.temperature, "of supcon");
  add.ignored_if(loss.method != "supcon", own);
  add("loss.margin", &loss.margin, "of triplet, between features of length 1");
  add.ignored_if(loss.method != "triplet", own);
  add("loss.on_collapse", &loss.on_collapse,
      "what follows when the features shrink, or the model predicts by chance or one class for "
      "all (docs/guide-paco.md): warn; stop the run; off, it is not looked at",
      /*fixed_in_run=*/false);
}

void add_entries(ConfigEntries& entries, PacoConfig& paco, const LossConfig& loss) {
  const EntryAdder add{entries, loss.method == "paco" ? "" : concat("loss.method = ", loss.method)};
  add_part_entries(add, paco);
  add_contrast_entries(add, paco);
  add_soc_entries(add, paco);
  add_ce_entries(add, paco);
}

void check_config(const LossConfig& loss) {
  check_choice("loss.method", loss.method, kMethods);
  check_range("loss.views", loss.views, 1, 2);
  check_range("loss.label_smoothing", loss.label_smoothing, 0, 0.999);
  check_range("loss.aux_weight", loss.aux_weight, 0, 1e6);
  check_range("loss.temperature", loss.temperature, 1e-3, 1e3);
  check_range("loss.margin", loss.margin, 0, 2);
  check_choice("loss.on_collapse", loss.on_collapse, kOnCollapse);
}

void check_config(const PacoConfig& paco) {
  check_choice("paco.preset", paco.preset, kPresets);
  check_range("paco.parts", paco.parts, 1, 8);
  check_range("paco.dim", paco.dim, 1, 512);
  check_range("paco.window", paco.window, 1, 512);
  check_range("paco.suppression_fraction", paco.suppression_fraction, 0, 1);
  check_range("paco.refresh_every", paco.refresh_every, 1, Index{1} << 40);
  for (const auto& [key, value] : {std::pair{"paco.lambda_pac", paco.lambda_pac},
                                   {"paco.eta_soc", paco.eta_soc},
                                   {"paco.alpha", paco.alpha},
                                   {"paco.beta", paco.beta},
                                   {"paco.match_floor", paco.match_floor},
                                   {"paco.rho", paco.rho}}) {
    check_range(key, value, 0, 1e6);
  }
  for (const auto& [key, value] : {std::pair{"paco.gamma", paco.gamma},
                                   {"paco.pooled", paco.pooled},
                                   {"paco.prototype_momentum", paco.prototype_momentum}}) {
    check_range(key, value, 0, 1);
  }
  check_range("paco.screen_top_m", paco.screen_top_m, 0, Index{1} << 40);
  check_range("paco.delta_floor", paco.delta_floor, 1e-12, 1e6);
  check_range("paco.soc_epsilon", paco.soc_epsilon, 1e-12, 1e6);
  check_range("paco.warm_up_epochs", paco.warm_up_epochs, 0, Index{1} << 40);
  if (paco.delta == "shrink") check_range("paco.rho", paco.rho, 0, 0.999999);
  HONE_CHECK(paco.pooled == 0 || paco.parts > 1, "paco.pooled", "0 for paco.parts = 1",
             paco.pooled);
  HONE_CHECK(paco.solver != "table" || paco.caps || paco.parts <= kernels::kMaxTableParts,
             "paco.parts", concat("at most ", kernels::kMaxTableParts, " for paco.solver = table"),
             paco.parts);
  static_cast<void>(model_options(paco, {}));
}

std::span<const std::string_view> preset_settings(std::string_view preset) {
  if (preset == "compat") return kCompat;
  if (preset == "robust") return kRobust;
  return {};
}

paco::PacoModelOptions model_options(const PacoConfig& paco, const LossConfig& loss) {
  using namespace hone::paco;
  using Stage = nn::ResNetImpl::Stage;
  PacoModelOptions out;
  out.stage = choose<Stage>("paco.stage", paco.stage,
                            {{"last", Stage::Last}, {"penultimate", Stage::Penultimate}});
  out.dim = paco.dim;
  out.enforce_caps = paco.caps;
  out.joint_views = paco.joint_views;
  out.refresh_every = paco.refresh_every;
  out.sampler = {
      .parts = paco.parts,
      .window = paco.window,
      .saliency = choose<Saliency>("paco.saliency", paco.saliency,
                                   {{"attention", Saliency::Attention}, {"norm", Saliency::Norm}}),
      .suppression = choose<Suppression>(
          "paco.suppression", paco.suppression,
          {{"window", Suppression::Window}, {"fraction", Suppression::Fraction}}),
      .fraction = paco.suppression_fraction,
      .allow_repeats = paco.repeat_peaks};
  out.ce = {.weight = choose<CeWeight>("paco.ce_weight", paco.ce_weight,
                                       {{"detached", CeWeight::Detached},
                                        {"attached", CeWeight::Attached},
                                        {"off", CeWeight::Off}}),
            .gamma = paco.gamma,
            .label_smoothing = loss.label_smoothing};
  out.ce_views = choose<CeViews>("paco.ce_views", paco.ce_views,
                                 {{"each", CeViews::Each}, {"mean", CeViews::Mean}});
  out.lambda_pac = paco.lambda_pac;
  out.eta_soc = paco.eta_soc;
  out.loss = loss_options(paco);
  return out;
}

}  // namespace hone::task
