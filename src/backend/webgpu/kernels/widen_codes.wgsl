// 16 elements of activation_codes to halves in the order of the rows, times FACTOR. Written around this by qmatmul.cpp:
// x4(i), store4(i, words), all_blocks(), and main.
fn signed_bytes(word: u32) -> vec4<f32> {
  return vec4<f32>(bitcast<vec4<i32>>(vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}
fn halves_of(code: u32, rest: u32, scale: f32) -> vec2<u32> {
  var x = signed_bytes(code);
  if (RESTS) { x = x * 256.0 + signed_bytes(rest); }
  x *= scale;
  return vec2<u32>(pack2x16float(x.xy), pack2x16float(x.zw));
}

fn widen(i: u32) {
  let all = all_blocks();
  if (i >= 2u * all) { return; }
  let block = i % all;
  let to = block * 4u + i / all * 2u;
  let codes = x4(i);
  var rests: vec4<u32>;
  if (RESTS) { rests = x4(i + 2u * all); }
  let scale = bitcast<f32>(x4(FACTS * all + block).x) * FACTOR;
  store4(to, vec4<u32>(halves_of(codes.x, rests.x, scale), halves_of(codes.y, rests.y, scale)));
  store4(to + 1u, vec4<u32>(halves_of(codes.z, rests.z, scale), halves_of(codes.w, rests.w, scale)));
}
