// How rows of a cache are read, eight columns at a time. Written around this by cached_decode.cpp: the constants;
// key_words and value_words, four words.
const NOWHERE = 0xffffffffu;  // the row of a key that the token does not see

struct Eight { low: vec4<f32>, high: vec4<f32> }

#if HALVES
struct Raw { words: vec4<u32> }
fn widen(x: Raw) -> Eight {
  return Eight(vec4<f32>(unpack2x16float(x.words.x), unpack2x16float(x.words.y)),
               vec4<f32>(unpack2x16float(x.words.z), unpack2x16float(x.words.w)));
}
fn load_key(at: u32) -> Raw { return Raw(key_words(at)); }
fn load_value(at: u32) -> Raw { return Raw(value_words(at)); }
#else
alias Raw = Eight;
fn widen(x: Raw) -> Eight { return x; }
fn load_key(at: u32) -> Raw {
  return Raw(bitcast<vec4<f32>>(key_words(at * 2u)), bitcast<vec4<f32>>(key_words(at * 2u + 1u)));
}
fn load_value(at: u32) -> Raw {
  return Raw(bitcast<vec4<f32>>(value_words(at * 2u)), bitcast<vec4<f32>>(value_words(at * 2u + 1u)));
}
#endif
