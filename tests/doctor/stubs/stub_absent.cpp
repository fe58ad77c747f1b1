extern "C" int weft_absent() {
  return 1;
}
