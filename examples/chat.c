/* A language model from plain C: the answer to one question, as it is made.
 *
 *   example-chat MODEL [QUESTION]
 */
#include <stdio.h>
#include <weft/capi.h>

static int print(const char* text, void* user) {
  (void)user;
  fputs(text, stdout);
  fflush(stdout);
  return 1; /* go on */
}

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, weft_last_error());
  return 1;
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s MODEL [QUESTION]\n", argv[0]);
    return 2;
  }
  weft_model_options options = weft_default_model_options();
  options.device = "cpu";
  weft_model* model = weft_load_model(argv[1], &options);
  if (!model) return failed("loading");

  int32_t ids[64];
  const int64_t count = weft_tokenize(model, "Hello, world", 0, ids, 64);
  if (count < 0 || count > 64) return failed("tokenizing");
  char* text = weft_detokenize(model, ids, (size_t)count);
  if (!text) return failed("detokenizing");
  printf("%lld tokens: %s\n", (long long)count, text);
  weft_free_text(text);

  weft_generate_options how = weft_default_generate_options();
  how.temperature = 0;
  how.max_tokens = 16;
  const int64_t made = weft_generate(model, argc > 2 ? argv[2] : "Hello, world", &how, print, NULL);
  if (made < 0) return failed("generating");
  printf("\n%lld tokens made\n", (long long)made);

  if (weft_load_model("/nowhere/model.gguf", &options)) return 1;
  printf("error: %s\n", weft_last_error());
  weft_free_model(model);
  return 0;
}
