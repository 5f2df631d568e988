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
      "values for the keys that are not set: exact: the defaults; compat: as the method was "
      "published; robust: a metric that all images share in part (paco.pooled = 0.5), softplus, no "
      "image weights; none: no values");
  add("paco.parts", &paco.parts, "number of parts per image, K");
  add("paco.dim", &paco.dim, "dimension of a part after projection");
  add("paco.caps", &paco.caps,
      "limit paco.parts to 4 and paco.dim to 64; higher values are lowered with a warning");
  add("paco.window", &paco.window,
      "side, in cells of the feature map, of the window that is averaged into a part; an even side "
      "counts as the next odd one");
  add("paco.stage", &paco.stage, "feature map that parts are taken from: last, penultimate");
  add("paco.joint_views", &paco.joint_views,
      "pass both views through BatchNorm as one batch instead of two");
  add("paco.saliency", &paco.saliency,
      "map whose peaks become parts: attention; norm, the norm of the features, for feature maps "
      "with both signs");
  add("paco.suppression", &paco.suppression,
      "distance from a peak within which no other peak is taken: window, half of paco.window; "
      "fraction, paco.suppression_fraction");
  add("paco.suppression_fraction", &paco.suppression_fraction,
      "distance for paco.suppression = fraction, as a fraction of the map's side");
  add.ignored_if(paco.suppression == "window", "paco.suppression = window");
  add("paco.repeat_peaks", &paco.repeat_peaks,
      "if all cells are suppressed, take the first cell again instead of the best cell that is not "
      "yet a peak");
  add("paco.refresh_every", &paco.refresh_every,
      "search for the peaks of an image at one of this many visits and keep their places in the "
      "image at the others; 1: search at every visit; above 1 on the CPU only");
}

// The same keys, but of a term of the loss that is not computed with a weight of 0.
EntryAdder with_weight(const EntryAdder& add, std::string_view name, double weight) {
  const bool is_off = weight == 0 && add.ignored_by.empty();
  return {add.entries, is_off ? concat(name, " = 0") : add.ignored_by};
}

void add_contrast_entries(const EntryAdder& add_all, PacoConfig& paco) {
  add_all("paco.lambda_pac", &paco.lambda_pac,
          "weight of the part contrast loss; 0: it is not computed");
  const EntryAdder add = with_weight(add_all, "paco.lambda_pac", paco.lambda_pac);
  add("paco.alpha", &paco.alpha, "margin of part contrast, in units of its distances");
  add("paco.mining", &paco.mining,
      "which part is the negative of an anchor: semi_hard, the nearest part farther away than the "
      "positive, or the nearest of all if there is none; hardest, the nearest");
  add("paco.screen_top_m", &paco.screen_top_m,
      "choose the negative only among this many parts with the largest cosine to the anchor; 0: "
      "among all");
  add("paco.pool", &paco.pool,
      "where negatives come from: distinct, all parts of the batch; one_image, the parts of one "
      "other image that is drawn for each image");
  add("paco.mask_owner", &paco.mask_owner, "do not use parts of the anchor's image as negatives");
  add("paco.mask_class", &paco.mask_class, "do not use parts of the anchor's class as negatives");
  add("paco.hinge", &paco.hinge, "relu: max(0, x); softplus: ln(1 + exp x)");
  add("paco.distance_scale", &paco.distance_scale,
      "divisor of distances: sqrt_dim, the square root of paco.dim; none");
  const std::string pooled = paco.pooled > 0 ? concat("paco.pooled = ", paco.pooled) : "";
  add("paco.delta", &paco.delta,
      "value added to the diagonal of an image's covariance to form its metric: absolute, "
      "paco.delta_floor; relative, paco.rho times the mean variance per dimension, but at least "
      "paco.delta_floor; shrink, the sum of both, with the covariance scaled by 1 - paco.rho");
  add.ignored_if(!pooled.empty(), pooled);
  add("paco.delta_floor", &paco.delta_floor,
      "smallest value of paco.delta, a variance in units of the parts; with paco.pooled, the "
      "smallest value added to the diagonal of the batch's mean covariance");
  add("paco.match_floor", &paco.match_floor,
      "value of paco.delta_floor while parts are matched; 0: the same");
  add.ignored_if(!pooled.empty(), pooled);
  add("paco.rho", &paco.rho, "factor of the mean variance in paco.delta");
  add.ignored_if(!pooled.empty(), pooled);
  add.ignored_if(paco.delta == "absolute", "paco.delta = absolute");
  add("paco.pooled", &paco.pooled,
      "weight, 0 to 1, of the batch's mean covariance in the metric of each image; above 0, it "
      "replaces paco.delta");
  add("paco.metric_grad", &paco.metric_grad,
      "let gradients flow through the metrics of images; false: the metrics are constants");
  add("paco.match_metric", &paco.match_metric,
      "distance by which the parts of two views are matched after the warm-up: mahalanobis, "
      "cosine");
  add("paco.warm_up_epochs", &paco.warm_up_epochs,
      "number of first epochs in which parts are matched by cosine");
  add.ignored_if(paco.match_metric == "cosine", "paco.match_metric = cosine");
  add("paco.solver", &paco.solver,
      "algorithm that matches parts: auto, table (up to 7 parts), hungarian, greedy, sinkhorn");
}

void add_soc_entries(const EntryAdder& add_all, PacoConfig& paco) {
  add_all("paco.eta_soc", &paco.eta_soc,
          "weight of the second-order alignment loss; 0: it is not computed, and class covariances "
          "are not updated");
  const EntryAdder add = with_weight(add_all, "paco.eta_soc", paco.eta_soc);
  add("paco.soc_metric", &paco.soc_metric,
      "distance between covariances: frobenius, stein, log_euclidean");
  add("paco.soc_scale", &paco.soc_scale,
      "divisor of the frobenius distance: trace, the squared mean trace of both covariances, so "
      "that the scale of the features does not matter; none, as published");
  add.ignored_if(paco.soc_metric != "frobenius", concat("paco.soc_metric = ", paco.soc_metric));
  add("paco.soc_epsilon", &paco.soc_epsilon, "value added to the diagonal of these covariances");
  add("paco.beta", &paco.beta, "weight of the distance to the class covariance");
  add("paco.prototype", &paco.prototype, "form of the class covariance: full, diagonal, off");
  add("paco.prototype_init", &paco.prototype_init,
      "class covariance before the first image of the class: skip, the class has no term; "
      "identity, the identity matrix");
  add.ignored_if(paco.prototype == "off", "paco.prototype = off");
  add("paco.prototype_momentum", &paco.prototype_momentum,
      "momentum of the moving average of the class covariance, 0 to 1");
  add.ignored_if(paco.prototype == "off", "paco.prototype = off");
}

void add_ce_entries(const EntryAdder& add, PacoConfig& paco) {
  add("paco.ce_weight", &paco.ce_weight,
      "weights of images in the cross entropy, from the norm of their parts: detached, constants "
      "with mean 1; attached, with a gradient, as published; off");
  add("paco.ce_views", &paco.ce_views,
      "logits of the cross entropy: each, those of each view; mean, those of the mean of both "
      "views' features, as published");
  add("paco.gamma", &paco.gamma,
      "fraction of the cross entropy that these weights apply to, 0 to 1");
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
      "ce: cross entropy; supcon, triplet: cross entropy plus supervised contrast or batch-hard "
      "triplets of ResNet features; paco: cross entropy plus part contrast (hone train paco)");
  add("loss.views", &loss.views,
      "views of each image per step, 1 or 2, each with its own augmentation");
  add.ignored_if(loss.method == "paco", "loss.method = paco, which takes 2");
  add("loss.label_smoothing", &loss.label_smoothing,
      "fraction of the target probability that is spread over all classes, 0 to 0.999");
  const std::string own = concat("loss.method = ", loss.method);
  const bool is_metric = loss.method == "supcon" || loss.method == "triplet";
  add("loss.aux_weight", &loss.aux_weight,
      "weight of the supcon or triplet loss, which is added to cross entropy");
  add.ignored_if(!is_metric, own);
  add("loss.temperature", &loss.temperature, "softmax temperature of the supcon loss");
  add.ignored_if(loss.method != "supcon", own);
  add("loss.margin", &loss.margin, "margin of the triplet loss, between features of length 1");
  add.ignored_if(loss.method != "triplet", own);
  add("loss.on_collapse", &loss.on_collapse,
      "what to do if the features shrink, or if the model predicts at chance level or one class "
      "for all images (docs/guide-paco.md): warn; stop, end the run; off, do not check",
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
