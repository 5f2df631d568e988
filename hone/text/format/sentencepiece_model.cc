// SPDX-License-Identifier: Apache-2.0
#include "hone/text/format/sentencepiece_model.h"

#include <bit>

#include "hone/core/function_ref.h"
#include "hone/text/format/byte_reader.h"

namespace hone::text {
namespace {

// Field numbers and defaults are those of sentencepiece_model.proto.
constexpr int kUnigram = 1, kBpe = 2;

// One protobuf field, whose length has been checked against the message.
struct Field {
  std::uint64_t number = 0;
  std::uint64_t varint = 0;  // wire types 0 and 5 (its 32 bits)
  std::string_view bytes;    // wire type 2

  float as_float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(varint)); }
};

void read_message(std::string_view bytes, std::string_view where,
                  FunctionRef<void(const Field&)> visit) {
  ByteReader reader(bytes, where);
  while (!reader.at_end()) {
    const std::uint64_t key = reader.read_varint("a field number");
    Field field;
    field.number = key >> 3;
    switch (key & 7) {
      case 0:
        field.varint = reader.read_varint("a number");
        break;
      case 1:
        field.varint = reader.read<std::uint64_t>("a number");
        break;
      case 2:
        field.bytes = reader.take(reader.read_varint("a length"), "a field");
        break;
      case 5:
        field.varint = reader.read<std::uint32_t>("a number");
        break;
      default:
        fail_corrupt(where, "protobuf wire type 0, 1, 2 or 5", concat(key & 7));
    }
    visit(field);
  }
}

struct ModelReader {
  std::string_view where;
  SentencePieceModel model;
  std::uint64_t kind = kUnigram;
  std::string bos = "<s>", eos = "</s>", padding = "<pad>";

  Vocabulary& vocabulary() { return model.vocabulary; }

  void read_piece(std::string_view bytes) {
    std::string piece;
    float score = 0;
    std::uint64_t type = 1;
    read_message(bytes, where, [&](const Field& field) {
      if (field.number == 1) piece = field.bytes;
      if (field.number == 2) score = field.as_float();
      if (field.number == 3) type = field.varint;
    });
    if (type < 1 || type > 6) {
      fail_corrupt(where, concat("a piece type from 1 to 6 for token ", vocabulary().pieces.size()),
                   concat(type));
    }
    vocabulary().pieces.push_back(std::move(piece));
    vocabulary().scores.push_back(score);
    vocabulary().types.push_back(static_cast<TokenType>(type));
  }

  void read_trainer(const Field& field) {
    switch (field.number) {
      case 3:
        kind = field.varint;
        break;
      case 24:
        if (field.varint != 0)
          fail_unsupported(where, "Models that put spaces after words are not supported.");
        break;
      case 35:
        vocabulary().byte_fallback = field.varint != 0;
        break;
      case 46:
        bos = field.bytes;
        break;
      case 47:
        eos = field.bytes;
        break;
      case 48:
        padding = field.bytes;
        break;
      default:
        break;
    }
  }

  void read_normalizer(const Field& field) {
    switch (field.number) {
      case 2:
        if (!field.bytes.empty()) {
          fail_unsupported(
              where,
              concat("SentencePiece models with a character map are not supported; this one has ",
                     field.bytes.size(), " bytes."));
        }
        break;
      case 3:
        vocabulary().add_space_prefix = field.varint != 0;
        break;
      case 4:
        vocabulary().remove_extra_whitespaces = field.varint != 0;
        break;
      case 5:
        if (field.varint == 0)
          fail_unsupported(
              where, "SentencePiece models that do not escape white space are not supported.");
        break;
      default:
        break;
    }
  }

  void read_self_test(std::string_view bytes) {
    read_message(bytes, where, [&](const Field& sample) {
      if (sample.number != 1) return;
      std::pair<std::string, std::string>& test = model.self_test.emplace_back();
      read_message(sample.bytes, where, [&](const Field& field) {
        if (field.number == 1) test.first = field.bytes;
        if (field.number == 2) test.second = field.bytes;
      });
    });
  }

  void read_top(const Field& field) {
    const auto each = [&](void (ModelReader::*read)(const Field&)) {
      read_message(field.bytes, where, [&](const Field& inner) { (this->*read)(inner); });
    };
    switch (field.number) {
      case 1:
        read_piece(field.bytes);
        break;
      case 2:
        each(&ModelReader::read_trainer);
        break;
      case 3:
        each(&ModelReader::read_normalizer);
        break;
      case 4:
        read_self_test(field.bytes);
        break;
      case 5:
        read_message(field.bytes, where, [&](const Field& inner) {
          if (inner.number == 2 && !inner.bytes.empty()) {
            fail_unsupported(where, "SentencePiece models with a denormalizer are not supported.");
          }
        });
        break;
      default:
        break;
    }
  }

  void set_special_tokens() {
    const auto find_control = [&](std::string_view piece) -> std::optional<TokenId> {
      const auto id = find_piece(vocabulary(), piece);
      return id && vocabulary().types[*id] == TokenType::Control ? id : std::nullopt;
    };
    vocabulary().bos = find_control(bos);
    vocabulary().eos = find_control(eos);
    vocabulary().padding = find_control(padding);
    vocabulary().add_bos = vocabulary().bos.has_value();
    for (std::size_t id = 0; id < vocabulary().types.size(); ++id) {
      if (vocabulary().types[id] == TokenType::Unknown) {
        vocabulary().unknown = static_cast<TokenId>(id);
      }
    }
  }
};

}  // namespace

SentencePieceModel read_sentencepiece_model(std::span<const std::byte> file,
                                            std::string_view where) {
  ModelReader reader;
  reader.where = where;
  Vocabulary& v = reader.vocabulary();
  v.model = TokenizerModel::SentencePieceBpe;
  v.add_space_prefix = true;
  v.remove_extra_whitespaces = true;
  v.byte_fallback = false;
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  read_message(bytes, where, [&](const Field& field) { reader.read_top(field); });
  if (v.pieces.empty()) fail_corrupt(where, "The SentencePiece model has no pieces.");
  if (reader.kind != kBpe) {
    fail_unsupported(where, "a SentencePiece model of type BPE",
                     reader.kind == kUnigram ? "unigram" : concat("type ", reader.kind));
  }
  reader.set_special_tokens();
  return std::move(reader.model);
}

void run_self_test(const SentencePieceModel& model, const Tokenizer& tokenizer,
                   std::string_view where) {
  for (const auto& [input, expected] : model.self_test) {
    std::string pieces;
    for (const TokenId id : tokenizer.encode(input, {.add_bos = false})) {
      if (!pieces.empty()) pieces += ' ';
      pieces += tokenizer.piece(id);
    }
    if (pieces != expected) {
      fail_corrupt(where, concat("the self-test's pieces \"", expected.substr(0, 80), "\""),
                   concat("\"", pieces.substr(0, 80), "\""));
    }
  }
}

}  // namespace hone::text
