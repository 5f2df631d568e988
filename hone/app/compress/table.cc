// SPDX-License-Identifier: Apache-2.0
#include "hone/app/compress/compress.h"
#include "hone/core/check.h"
#include "hone/core/names.h"
#include "hone/core/text_format.h"

namespace hone::app {
namespace {

void add_card(const Json& card, std::string& text) {
  text += concat("  ", escape_controls(card["text"].get<std::string>()), ": perplexity ratio ",
                 fixed(card["ppl_ratio"].get<double>(), 4), " [",
                 fixed(card["ppl_ratio_ci"][0].get<double>(), 4), ", ",
                 fixed(card["ppl_ratio_ci"][1].get<double>(), 4), "], KL ",
                 fixed(card["kl_mean"].get<double>(), 5), " nats (99 % of tokens below ",
                 fixed(card["kl_p99"].get<double>(), 3), "), top-1 agreement ",
                 fixed(100 * card["top1_agreement"].get<double>(), 2), " %\n");
}

}  // namespace

std::string to_table(const CompressOutcome& outcome) {
  const Json& document = outcome.document;
  std::string text;
  const Json& forecast = document["forecast"];
  const bool is_plan = !document.contains("passes");
  const std::string comment = is_plan ? "# " : "";  // a plan is a recipe
  text += concat(comment, "forecast: ", format_bytes(forecast["file_bytes"].get<Index>()),
                 " of weights, ", format_bytes(forecast["peak_bytes"].get<Index>()), " of memory, ",
                 fixed(forecast["minutes"].get<double>(), 1), " minutes\n");
  if (const auto plan = document.find("allocation"); plan != document.end()) {
    text += concat(comment, "allocation: ", format_bytes((*plan)["bytes"].get<Index>()),
                   ", predicted mean KL ", (*plan)["predicted_kl"].get<double>(), " nats\n");
    if (is_plan) return text + (*plan)["recipe"].get<std::string>();
  }
  if (is_plan) return text;
  for (const Json& pass : document["passes"]) {
    const bool removes_layers = !pass["evidence"].empty() && pass["evidence"][0].contains("layer");
    text += concat(pass["name"].get<std::string>(), ": ", pass["status"].get<std::string>(), " (",
                   escape_controls(pass["reason"].get<std::string>()), ")\n  ",
                   format_bytes(pass["bytes_before"].get<Index>()), " -> ",
                   format_bytes(pass["bytes_after"].get<Index>()));
    if (removes_layers) {
      text += " without layer";
      for (const Json& row : pass["evidence"]) text += concat(" ", row["layer"].get<Index>());
      text += "\n";
    } else {
      text += concat(" in ", pass["evidence"].size(), " matrices\n");
    }
    if (const Index again = pass["rounded_again"].get<Index>(); again > 0)
      text += concat("  ", again, " of them were quantized already and have been rounded again\n");
    if (const Json& kept = pass["kept"]; !kept.empty())
      text += concat("  ", kept.size(), " more stay as they are, such as ",
                     escape_controls(kept[0]["tensor"].get<std::string>()), ": ",
                     kept[0]["reason"].get<std::string>(), "\n");
    if (!pass["speedup"].is_null()) {
      const Json& speedup = pass["speedup"];
      text += concat("  products ", fixed(pass["ms_before"].get<double>(), 2), " -> ",
                     fixed(pass["ms_after"].get<double>(), 2), " ms, ",
                     fixed(speedup["ratio"].get<double>(), 2), "x [",
                     fixed(speedup["ci"][0].get<double>(), 2), ", ",
                     fixed(speedup["ci"][1].get<double>(), 2), "]\n");
    }
    if (!pass["statistics"].is_null()) {
      const Json& counts = pass["statistics"];
      text += concat("  ", counts["original_params"].get<Index>(), " -> ",
                     counts["remaining_params"].get<Index>(), " weights, ",
                     fixed(100 * counts["actual_sparsity"].get<double>(), 2), " % removed\n");
    }
    if (pass["quality"].is_null()) continue;
    add_card(pass["quality"], text);
    for (const Json& card : pass["quality"]["other_texts"]) add_card(card, text);
  }
  if (!outcome.written) return text;
  const Json& card = document["quality"];
  if (card.is_object() && !card["layers"].is_null()) {
    const Json& last = card["layers"].back();
    text += concat("the stream behind the last layer differs from the original's by ",
                   fixed(100 * last["measured"].get<double>(), 1), " % of its size (",
                   fixed(100 * last["predicted"].get<double>(), 1),
                   " % predicted from single layers, bound ",
                   fixed(100 * last["bound"].get<double>(), 1), " %)\n");
  }
  const Json& sizes = document["sizes"];
  return text + concat(escape_controls(document["out"].get<std::string>()), ": ",
                       format_bytes(sizes["file_bytes"].get<Index>()), " of weights, ",
                       fixed(sizes["bits_per_weight"].get<double>(), 2), " bits per weight, ",
                       format_bytes(sizes["resident_bytes"].get<Index>()),
                       " of memory when loaded\n");
}

}  // namespace hone::app
