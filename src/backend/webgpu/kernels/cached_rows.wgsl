// Which keys a token looks at, and how rows of a cache are read, eight columns at a time. Written around this by
// cached_decode.cpp: the constants; keys, window, position, sequence; key_words and value_words, four words.
const NOWHERE = 0xffffffffu;  // the row of a key that the token does not see

// The number of a sequence's first key.
fn first_key(token: u32) -> u32 {
#if SEQUENCES
  return u32(sequence(token)) * keys();
#else
  return 0u;
#endif
}
// Of those keys of a sequence, counted from its first one, which a token may see: from first_seen() on, from .x up to .y.
fn first_seen(token: u32) -> u32 {
  var first = 0u;
  #if PITCH
  #if WINDOW
  first = u32(max(position(token) - window() + 1, 0));
  #endif
  #endif
  return first;
}
fn visible(token: u32) -> vec2<u32> {
  var range = vec2<u32>(first_seen(token), keys());
  #if PITCH
  #if CAUSAL
  range.y = min(range.y, u32(position(token)) + 1u);
  #endif
  #endif
  return range;
}

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
