extern "C" int weft_absent();

extern "C" int uses_absent() {
  return weft_absent();
}
