// The C interface over LanguageModel, ChatTemplate and Embedder: exceptions end here.
#include "weft/capi.h"

#include <cstdlib>
#include <cstring>
#include <exception>

#include "llm/chat_prompt.h"
#include "llm/embed.h"
#include "weft/error.h"
#include "weft/llm.h"
#include "weft/version.h"

using namespace weft;

struct weft_model {
  LanguageModel model;
  std::filesystem::path path;
  std::string device;
  std::optional<ChatTemplate> form;  ///< read when it is first asked for
};

struct weft_embedder {
  llm::Embedder embedder;
};

namespace {

thread_local std::string last_error;

/// What `body` returns; `failed` where it throws.
template <typename Result, typename Body>
Result guarded(Result failed, const Body& body) {
  try {
    return body();
  } catch (const std::exception& e) {
    last_error = e.what();
  } catch (...) {
    last_error = "[capi] unknown error";
  }
  return failed;
}

void require(bool given, const char* what) {
  if (!given) throw Error(ErrorKind::invalid, std::string("[capi] ") + what + " is NULL");
}

GenerateOptions options_of(const weft_generate_options& c) {
  GenerateOptions options{.max_tokens = c.max_tokens < 0 ? -1 : c.max_tokens};
  options.sampler.temperature = c.temperature;
  options.sampler.top_k = c.top_k;
  options.sampler.top_p = c.top_p;
  options.sampler.min_p = c.min_p;
  options.sampler.repeat_penalty = c.repeat_penalty;
  if (c.seed >= 0) options.sampler.seed = static_cast<uint64_t>(c.seed);
  for (size_t i = 0; c.stops && i < c.stop_count; ++i) options.stops.emplace_back(c.stops[i]);
  if (c.grammar) options.grammar = c.grammar;
  if (c.json_schema) options.json_schema = c.json_schema;
  return options;
}

int64_t generate(weft_model& model, const std::vector<TokenId>& prompt, const weft_generate_options* options,
                 weft_on_text on_text, void* user) {
  const GenerateResult result =
      model.model.generate(prompt, options_of(options ? *options : weft_default_generate_options()),
                           [&](const GeneratedToken& token) {
                             return !on_text || token.text.empty() || on_text(token.text.c_str(), user) != 0;
                           });
  return std::ssize(result.tokens);
}

}  // namespace

const char* weft_version() {
  static const std::string text(version());
  return text.c_str();
}

const char* weft_last_error() {
  return last_error.c_str();
}

weft_model_options weft_default_model_options() {
  return {.device = nullptr, .context = 0, .gpu_layers = -1, .progress = nullptr, .user = nullptr};
}

weft_model* weft_load_model(const char* path, const weft_model_options* given) {
  return guarded<weft_model*>(nullptr, [&] {
    require(path, "path");
    const weft_model_options c = given ? *given : weft_default_model_options();
    const std::string wanted = c.device ? c.device : "auto";
    ModelOptions options{
        .device = Device::open(wanted), .may_fall_back = wanted == "auto", .context = c.context};
    if (c.gpu_layers >= 0) options.gpu_layers = c.gpu_layers;
    if (c.progress)
      options.progress = [&c](uint64_t bytes, uint64_t total) { c.progress(bytes, total, c.user); };
    auto* model = new weft_model{LanguageModel::open(path, options), path, {}, {}};
    model->device = model->model.device().name();
    return model;
  });
}

void weft_free_model(weft_model* model) {
  delete model;
}

int64_t weft_model_context(const weft_model* model) {
  return model->model.context();
}
int64_t weft_model_vocabulary(const weft_model* model) {
  return model->model.vocabulary();
}
const char* weft_model_device(const weft_model* model) {
  return model->device.c_str();
}

int64_t weft_tokenize(const weft_model* model, const char* text, int special, int32_t* ids, size_t capacity) {
  return guarded<int64_t>(-1, [&] {
    require(model && text, "model or text");
    const std::vector<TokenId> tokens =
        model->model.tokenizer().encode(text, {.add_special = special != 0, .parse_special = special != 0});
    if (ids) std::copy_n(tokens.begin(), std::min(capacity, tokens.size()), ids);
    return static_cast<int64_t>(tokens.size());
  });
}

char* weft_detokenize(const weft_model* model, const int32_t* ids, size_t count) {
  return guarded<char*>(nullptr, [&] {
    require(model && (ids || count == 0), "model or ids");
    const std::string text = model->model.tokenizer().decode({ids, count}, {.special = true});
    char* copy = static_cast<char*>(std::malloc(text.size() + 1));
    if (!copy) throw Error(ErrorKind::memory, "[capi] no memory for a text");
    std::memcpy(copy, text.c_str(), text.size() + 1);
    return copy;
  });
}

void weft_free_text(char* text) {
  std::free(text);
}

weft_generate_options weft_default_generate_options() {
  const SamplerOptions sampler;
  return {.max_tokens = -1,
          .temperature = sampler.temperature,
          .top_k = sampler.top_k,
          .top_p = sampler.top_p,
          .min_p = sampler.min_p,
          .repeat_penalty = sampler.repeat_penalty,
          .seed = -1,
          .stops = nullptr,
          .stop_count = 0,
          .grammar = nullptr,
          .json_schema = nullptr};
}

int64_t weft_generate(weft_model* model, const char* prompt, const weft_generate_options* options,
                      weft_on_text on_text, void* user) {
  return guarded<int64_t>(-1, [&] {
    require(model && prompt, "model or prompt");
    const std::vector<TokenId> ids =
        model->model.tokenizer().encode(prompt, {.add_special = true, .parse_special = true});
    return generate(*model, ids, options, on_text, user);
  });
}

int64_t weft_chat(weft_model* model, const char* messages, const weft_generate_options* options,
                  weft_on_text on_text, void* user) {
  return guarded<int64_t>(-1, [&] {
    require(model && messages, "model or messages");
    if (!model->form) model->form = ChatTemplate::open(model->path);
    return generate(*model, chat_prompt(*model->form, model->model.tokenizer(), messages), options, on_text,
                    user);
  });
}

weft_embedder* weft_load_embedder(const char* path, const char* device) {
  return guarded<weft_embedder*>(nullptr, [&] {
    require(path, "path");
    return new weft_embedder{llm::Embedder(path, Device::open(device ? device : "auto"))};
  });
}

void weft_free_embedder(weft_embedder* embedder) {
  delete embedder;
}

int64_t weft_embed(weft_embedder* embedder, const char* text, float* vector, size_t capacity) {
  return guarded<int64_t>(-1, [&] {
    require(embedder && text, "embedder or text");
    const std::vector<float> values = embedder->embedder.embed(text);
    if (vector) std::copy_n(values.begin(), std::min(capacity, values.size()), vector);
    return static_cast<int64_t>(values.size());
  });
}
