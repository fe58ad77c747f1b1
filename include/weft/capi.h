/* weft in plain C: load a language model, generate, tokenise, embed.
 *
 * Every function that can fail returns NULL or a negative number then; weft_last_error() has one line that
 * says why, for the calling thread, until its next failure. Texts are UTF-8 and end with a 0 byte. What a
 * function returns as new is the caller's and is given back with the matching weft_free_*. A model is for one
 * thread at a time. */
#ifndef WEFT_CAPI_H
#define WEFT_CAPI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_model weft_model;
typedef struct weft_embedder weft_embedder;

const char* weft_version(void);
const char* weft_last_error(void); /* "" where nothing has failed yet */

/* ---- Models ---- */

typedef struct weft_model_options {
  const char* device; /* "auto", "cpu", "webgpu", "webgpu:N", "webgpu:NAME"; NULL: auto */
  int64_t context;    /* tokens; 0: what the model was made for, up to 4096 */
  int64_t gpu_layers; /* layers on the device; negative: as many as fit */
  /* Called while weights are read; may be NULL. */
  void (*progress)(uint64_t bytes, uint64_t total, void* user);
  void* user;
} weft_model_options;

weft_model_options weft_default_model_options(void);
/* A GGUF file or a Hugging Face folder. `options` may be NULL. */
weft_model* weft_load_model(const char* path, const weft_model_options* options);
void weft_free_model(weft_model* model);

int64_t weft_model_context(const weft_model* model);
int64_t weft_model_vocabulary(const weft_model* model);
const char* weft_model_device(const weft_model* model); /* valid as long as the model */

/* ---- Tokens ---- */

/* Writes up to `capacity` ids and returns how many there are. `special`: 1 adds what the model wants around a
 * text and reads control tokens that are spelt in it. */
int64_t weft_tokenize(const weft_model* model, const char* text, int special, int32_t* ids, size_t capacity);
/* The text of tokens, new. */
char* weft_detokenize(const weft_model* model, const int32_t* ids, size_t count);
void weft_free_text(char* text);

/* ---- Generation ---- */

typedef struct weft_generate_options {
  int64_t max_tokens; /* negative: until the text ends */
  float temperature;  /* 0: the most likely token */
  int64_t top_k;
  float top_p, min_p, repeat_penalty;
  int64_t seed;             /* negative: another one each time */
  const char* const* stops; /* texts that end the answer; NULL or `stop_count` of them */
  size_t stop_count;
  const char* grammar;     /* GBNF, or NULL */
  const char* json_schema; /* or NULL */
} weft_generate_options;

weft_generate_options weft_default_generate_options(void);

/* Called with each piece of the answer, whole characters; a result of 0 stops. */
typedef int (*weft_on_text)(const char* text, void* user);

/* Continues a text; `options` and `on_text` may be NULL. The number of tokens that were made. */
int64_t weft_generate(weft_model* model, const char* prompt, const weft_generate_options* options,
                      weft_on_text on_text, void* user);
/* Answers a conversation, a JSON list of {"role", "content"}, in the model's own form. */
int64_t weft_chat(weft_model* model, const char* messages, const weft_generate_options* options,
                  weft_on_text on_text, void* user);

/* ---- Embeddings ---- */

weft_embedder* weft_load_embedder(const char* path, const char* device);
void weft_free_embedder(weft_embedder* embedder);
/* Writes up to `capacity` elements of a vector of length 1 and returns how many it has. */
int64_t weft_embed(weft_embedder* embedder, const char* text, float* vector, size_t capacity);

#ifdef __cplusplus
}
#endif

#endif
