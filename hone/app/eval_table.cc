// SPDX-License-Identifier: Apache-2.0
#include "hone/app/eval_table.h"

#include <vector>

#include "hone/core/check.h"
#include "hone/core/text_format.h"

namespace hone::app {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string interval(const compress::Estimate& estimate, int decimals) {
  return concat("[", fixed(estimate.low, decimals), ", ", fixed(estimate.high, decimals),
                "] with 95 % confidence");
}

void add_comparison(const compress::QualityComparison& with, Rows& rows) {
  const auto nats = [&](const char* name, double value) {
    rows.push_back({name, fixed(value, 5), "nats a token"});
  };
  rows.push_back({"baseline's perplexity", fixed(with.baseline_perplexity, 4)});
  rows.push_back({"perplexity ratio", fixed(with.perplexity_ratio.value, 4),
                  interval(with.perplexity_ratio, 4) + ", model / baseline"});
  nats("KL divergence, mean", with.kl_mean.value);
  nats("KL, median", with.kl_p50);
  nats("KL, 90 % below", with.kl_p90);
  nats("KL, 99 % below", with.kl_p99);
  nats("KL, largest", with.kl_max);
  rows.push_back({"top-1 agreement", fixed(100 * with.top1_agreement.value, 2), "% of the tokens"});
  rows.push_back({"change of probability", fixed(100 * with.delta_p_mean, 3),
                  concat("points for the token, RMS ", fixed(100 * with.delta_p_rms, 3))});
}

}  // namespace

std::string to_table(const EvalResult& result) {
  const compress::QualityCard& card = result.card;
  Rows rows{
      {"tokens predicted", group_digits(card.tokens),
       concat("in ", group_digits(result.windows), result.windows == 1 ? " window" : " windows",
              " of up to ", group_digits(result.window))},
      {"perplexity", fixed(card.perplexity.value, 4), interval(card.perplexity, 4)},
      {"cross-entropy", fixed(card.nll, 4), "nats a token"}};
  if (card.bits_per_byte) {
    rows.push_back({"bits per byte", fixed(*card.bits_per_byte, 4),
                    concat("of ", group_digits(card.bytes), " bytes of UTF-8")});
  }
  if (card.comparison) add_comparison(*card.comparison, rows);
  rows.push_back({"time", fixed(result.seconds, 1), "s"});
  return format_table(rows, "lrl");
}

}  // namespace hone::app
