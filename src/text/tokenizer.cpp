#include <algorithm>

#include "base/error.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer_data.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"
#include "weft/text.h"

namespace weft {
namespace {

void encode_text(const TokenizerData& data, std::string_view text, bool at_start, bool trusted,
                 std::vector<TokenId>& out) {
  const std::string clean = normalized(text, data.normalizers);
  const TrustedRanges whole = trusted ? TrustedRanges{{0, clean.size()}} : TrustedRanges{};
  for (const AddedTokens::Part& part : data.added_normalized.split(clean, whole)) {
    if (part.token != kNoToken) {
      out.push_back(part.token);
      continue;
    }
    Pieces pieces{.text = std::string(part.text), .spans = {{0, part.text.size()}}};
    pieces.at_start = at_start && part.text.data() == clean.data();
    cut(pieces, data.pre_tokenizers);
    data.model->encode(pieces, out);
  }
}

/// The bytes of a token that is no control token.
std::string decoded(const TokenizerData& data, TokenId id, bool first) {
  std::string piece = (*data.vocabulary)[id].text;
  if ((*data.vocabulary)[id].kind != TokenKind::user_defined)
    for (const DecodeStep& step : data.decoder) step(piece, first);
  return piece;
}

}  // namespace

Tokenizer Tokenizer::open(const std::filesystem::path& model) {
  try {
    if (std::filesystem::is_directory(model)) return Tokenizer(read_tokenizer_json(model / "tokenizer.json"));
    if (model.extension() == ".json") return Tokenizer(read_tokenizer_json(model));
    return Tokenizer(read_gguf_tokenizer(Gguf::open(model)));
  } catch (const Error& e) {  // of parts that do not know which file they are for, such as a pattern
    const std::string_view message = e.what();
    if (message.find(model.string()) != message.npos) throw;
    throw Error(e.kind(), fmt::format("{}, in {}", message, model.string()));
  }
}

Tokenizer::Tokenizer(TokenizerData data) : data_(std::make_shared<const TokenizerData>(std::move(data))) {}

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const TextPart part{text, options.parse_special};
  return encode(std::span(&part, 1), options.add_special);
}

std::vector<TokenId> Tokenizer::encode(std::span<const TextPart> parts, bool add_special) const {
  std::string text;
  TrustedRanges trusted;
  for (const TextPart& part : parts) {
    const size_t begin = text.size();
    text += data_->keeps_bytes ? std::string(part.text) : utf8::valid(part.text);
    if (part.trusted) trusted.emplace_back(begin, text.size());
  }
  std::vector<TokenId> ids;
  if (add_special) ids = data_->prefix;
  for (const AddedTokens::Part& part : data_->added.split(text, trusted)) {
    const size_t begin = static_cast<size_t>(part.text.data() - text.data());
    if (part.token != kNoToken)
      ids.push_back(part.token);
    else
      encode_text(*data_, part.text, begin == 0, is_trusted(trusted, begin, begin + part.text.size()), ids);
  }
  if (add_special) ids.insert(ids.end(), data_->suffix.begin(), data_->suffix.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, const DecodeOptions& options) const {
  Detokenizer detokenizer(*this, options);
  std::string text;
  for (TokenId id : ids) text += detokenizer.push(id);
  return text + detokenizer.finish();
}

size_t Tokenizer::size() const {
  return data_->vocabulary->size();
}

std::string_view Tokenizer::spelling(TokenId id) const {
  if (!data_->vocabulary->has(id))
    fail(ErrorKind::invalid, "[tokenizer] {} is no token: there are {}", id, size());
  return (*data_->vocabulary)[id].text;
}

std::optional<TokenId> Tokenizer::find(std::string_view spelling) const {
  const TokenId id = data_->vocabulary->find(spelling);
  return id == kNoToken ? std::nullopt : std::optional(id);
}

std::string Tokenizer::bytes_of(TokenId id) const {
  const std::string_view text = spelling(id);
  return text.empty() || is_control(id) ? "" : decoded(*data_, id, false);
}

bool Tokenizer::is_control(TokenId id) const {
  return data_->vocabulary->has(id) && data_->vocabulary->is_control(id);
}

std::optional<TokenId> Tokenizer::bos() const {
  return data_->bos == kNoToken ? std::nullopt : std::optional(data_->bos);
}

std::optional<TokenId> Tokenizer::eos() const {
  return data_->eos == kNoToken ? std::nullopt : std::optional(data_->eos);
}

bool Tokenizer::ends_generation(TokenId id) const {
  return data_->ends.contains(id);
}

std::string Detokenizer::push(TokenId id) {
  const std::string_view spelling = tokenizer_.spelling(id);
  const bool control = tokenizer_.is_control(id);
  if (control && !special_) return "";
  pending_ += control ? std::string(spelling) : decoded(*tokenizer_.data_, id, first_);
  first_ = false;
  const size_t complete = utf8::complete_length(pending_);
  std::string text = utf8::valid(std::string_view(pending_).substr(0, complete));
  pending_.erase(0, complete);
  return text;
}

std::string Detokenizer::finish() {
  std::string text = utf8::valid(pending_);
  pending_.clear();
  return text;
}

}  // namespace weft
