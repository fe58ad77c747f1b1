// 16 codes of quantize_i8 to halves in the order of the rows, times FACTOR. Written around this by qmatmul.cpp: x4(i),
// store4(i, words), all_blocks(), and main.
fn signed_bytes(word: u32) -> vec4<f32> {
  return vec4<f32>(bitcast<vec4<i32>>(vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}
fn halves_of(x: vec4<f32>) -> vec2<u32> { return vec2<u32>(pack2x16float(x.xy), pack2x16float(x.zw)); }

fn widen(i: u32) {
  if (i >= 2u * all_blocks()) { return; }
  let block = i % all_blocks();
  let to = block * 4u + i / all_blocks() * 2u;
  let codes = x4(i);
  let scale = bitcast<f32>(x4(2u * all_blocks() + block).x) * FACTOR;
  store4(to, vec4<u32>(halves_of(signed_bytes(codes.x) * scale), halves_of(signed_bytes(codes.y) * scale)));
  store4(to + 1u, vec4<u32>(halves_of(signed_bytes(codes.z) * scale), halves_of(signed_bytes(codes.w) * scale)));
}
