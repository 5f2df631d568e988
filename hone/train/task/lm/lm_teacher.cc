// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/lm/lm_teacher.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/names.h"
#include "hone/text/token_stream.h"
#include "hone/train/nn/load_llama.h"
#include "hone/train/nn/ops.h"
#include "hone/train/nn/recompute.h"
#include "hone/train/task/lm/factored_model.h"

namespace hone::task {
namespace {

using torch::Tensor;

constexpr const char* kTeacher = "distill.teacher";

void check_same_tokens(const text::Tokenizer& teacher, const text::Tokenizer& student) {
  HONE_CHECK(teacher.vocab_size() == student.vocab_size(), kTeacher,
             concat("a teacher with the ", student.vocab_size(), " tokens of model.init"),
             teacher.vocab_size());
  for (text::TokenId id = 0; id < static_cast<text::TokenId>(teacher.vocab_size()); ++id) {
    HONE_CHECK(teacher.piece(id) == student.piece(id), kTeacher,
               concat("a teacher with the tokens of model.init, ", quote_name(student.piece(id)),
                      " as token ", id),
               quote_name(teacher.piece(id)));
  }
}

// Calls use(first, count) for parts of `rows` positions whose logits are computed together.
void for_each_part(Index rows, Index classes, const std::function<void(Index, Index)>& use) {
  const Index most = nn::logits_rows(classes);
  for (Index first = 0; first < rows; first += most) use(first, std::min(most, rows - first));
}

}  // namespace

std::optional<LmTeacher> open_teacher(const LmConfig& config, const InitialModel* initial) {
  if (config.distill.teacher.empty()) return std::nullopt;
  const InitialModel from = open_initial_model(config.distill.teacher);
  const std::string where = from.path.string();
  HONE_CHECK(window_of(config) <= from.architecture.context, "data.window",
             concat("at most ", from.architecture.context, ", the context of ", where),
             window_of(config));
  if (initial != nullptr) check_same_tokens(*from.tokenizer, *initial->tokenizer);
  LmTeacher out;
  model_io::Architecture architecture = from.architecture;
  architecture.context =
      std::min(architecture.context, std::max(window_of(config), text::kEvalWindow));
  out.model = make_llama(architecture, /*seed=*/0, nn::parse_matmul_backend(config.trainer.matmul));
  out.files = from.file->files();
  nn::load_llama(*out.model, *from.file);
  out.model->to(trainer::device_of(config.trainer));
  out.model->eval();
  for (Tensor& parameter : out.model->parameters()) parameter.set_requires_grad(false);
  out.tokenizer = from.tokenizer;
  out.generation_defaults = from.generation_defaults;
  out.metadata = from.metadata;
  out.path = from.path;
  out.parameters = from.architecture.parameters();
  log_info(concat("distill.teacher: ", where, ", ", out.parameters, " parameters"));
  return out;
}

loss::DistillationSums distillation_sums(const nn::LlamaImpl& student, const nn::LlamaImpl& teacher,
                                         const Tensor& ids, const Tensor& targets,
                                         const loss::DistillationOptions& options) {
  const Tensor rows = student.hidden(ids), wanted = targets.reshape({-1});
  const bool is_soft = options.alpha > 0;
  Tensor taught;
  if (is_soft) {
    const at::NoGradGuard no_grad;
    taught = teacher.hidden(ids);
  }
  loss::DistillationSums out;
  const auto add = [](Tensor& sum, const Tensor& part) { sum = sum.defined() ? sum + part : part; };
  for_each_part(rows.size(0), student.architecture().vocab_size, [&](Index first, Index count) {
    const Tensor part_targets = wanted.narrow(0, first, count);
    const Tensor part_taught = is_soft ? taught.narrow(0, first, count) : Tensor();
    const auto sums_of = [&student, &teacher, part_targets, part_taught,
                          options](const nn::Tensors& in) -> nn::Tensors {
      Tensor logits;
      if (part_taught.defined()) {
        const at::NoGradGuard no_grad;
        logits = teacher.logits_of(part_taught);
      }
      const loss::DistillationSums sums =
          loss::distillation_sums(student.logits_of(in[0]), logits, part_targets, options);
      const auto wide = [](const Tensor& sum) {
        return sum.defined() ? sum.to(at::kDouble) : Tensor();
      };
      return {wide(sums.total), wide(sums.soft).detach(), wide(sums.hard).detach()};
    };
    const nn::Tensors part = nn::recompute(sums_of, {rows.narrow(0, first, count)});
    add(out.total, part[0]);
    if (is_soft) add(out.soft, part[1]);
    add(out.hard, part[2]);
  });
  out.rows = wanted.ge(0).sum().item<Index>();
  return out;
}

Index count_agreements(const nn::LlamaImpl& one, const nn::LlamaImpl& other, const Tensor& ids,
                       const Tensor& targets) {
  const at::NoGradGuard no_grad;
  const Tensor rows = one.hidden(ids), others = other.hidden(ids);
  const Tensor counts = targets.reshape({-1}).ge(0);
  Index same = 0;
  for_each_part(rows.size(0), one.architecture().vocab_size, [&](Index first, Index count) {
    const Tensor best = one.logits_of(rows.narrow(0, first, count)).argmax(1);
    const Tensor theirs = other.logits_of(others.narrow(0, first, count)).argmax(1);
    same += best.eq(theirs).logical_and(counts.narrow(0, first, count)).sum().item<Index>();
  });
  return same;
}

}  // namespace hone::task
