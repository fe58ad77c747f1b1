// What generated kernels may call. Only the functions that a kernel uses go into it. Each starts with `fn` at the start
// of a line. params.p0 is the bits of infinity: WGSL refuses constant expressions that are infinite or NaN.

fn weft_inf() -> f32 { return bitcast<f32>(params.p0); }
fn weft_nan() -> f32 { return bitcast<f32>(params.p0 | 0x400000u); }
fn weft_isnan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn weft_isinf(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u; }
fn weft_copysign(x: f32, sign: f32) -> f32 {
  return bitcast<f32>((bitcast<u32>(x) & 0x7fffffffu) | (bitcast<u32>(sign) & 0x80000000u));
}
fn weft_sign(x: f32) -> f32 { return select(select(0.0, 1.0, x > 0.0) - select(0.0, 1.0, x < 0.0), x, weft_isnan(x)); }

// Rounding to nearest even, overflow to infinity, in integers.
fn weft_from_f16(h: u32) -> f32 {
#if UNPACK_F16
  return unpack2x16float(h).x;
#else
  let sign = (h & 0x8000u) << 16u;
  let rest = h & 0x7fffu;
  if (rest >= 0x7c00u) { return bitcast<f32>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13u)); }
  if (rest < 0x400u) { return bitcast<f32>(bitcast<u32>(f32(rest) * 5.9604644775390625e-8) | sign); }
  return bitcast<f32>(sign | ((rest + 0x1c000u) << 13u));
#endif
}
fn weft_to_f16(x: f32) -> u32 {
#if PACK_F16
  return pack2x16float(vec2<f32>(x, 0.0));
#else
  let bits = bitcast<u32>(x);
  let rest = bits & 0x7fffffffu;
  let shift = clamp(126u - (rest >> 23u), 14u, 25u);  // of a subnormal; 25 leaves nothing
  let mantissa = (rest & 0x7fffffu) | 0x800000u;
  let small = (mantissa + (1u << (shift - 1u)) - 1u + ((mantissa >> shift) & 1u)) >> shift;
  let normal = (rest - 0x38000000u + 0xfffu + ((rest >> 13u) & 1u)) >> 13u;
  let large = select(0x7c00u, 0x7e00u, rest > 0x7f800000u);
  let size = select(select(normal, small, rest < 0x38800000u), large, rest >= 0x477ff000u);
  return ((bits >> 16u) & 0x8000u) | size;
#endif
}
fn weft_from_bf16(b: u32) -> f32 { return bitcast<f32>(b << 16u); }
fn weft_to_bf16(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let rounded = bits + 0x7fffu + ((bits >> 16u) & 1u);
  return select(rounded, bits | 0x400000u, weft_isnan(x)) >> 16u;
}
// To 11 bits or to multiples of 2^-24. Not there and back: drivers leave out an unpack of a pack.
fn weft_round_f16(x: f32) -> f32 {
  let sign = bitcast<u32>(x) & 0x80000000u;
  let rest = bitcast<u32>(x) & 0x7fffffffu;
  let normal = (rest + 0xfffu + ((rest >> 13u) & 1u)) & 0xffffe000u;
  let small = bitcast<u32>(round(abs(x) * 16777216.0) * 5.9604644775390625e-8);
  let finite = select(select(normal, 0x7f800000u, normal >= 0x47800000u), small, rest < 0x38800000u);
  return bitcast<f32>(select(finite, rest, rest > 0x7f800000u) | sign);
}
fn weft_round_bf16(x: f32) -> f32 { return weft_from_bf16(weft_to_bf16(x)); }
fn weft_wrap_i8(x: i32) -> i32 { return (x << 24u) >> 24u; }
fn weft_signed_bytes(word: u32) -> vec4<f32> {
  return vec4<f32>(bitcast<vec4<i32>>(vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}

// Toward zero; out of range is clamped for i32, and wraps for u32 as a conversion through 64 bits does.
fn weft_to_i32(x: f32) -> i32 {
  if (weft_isnan(x)) { return 0; }
  if (x >= 2147483648.0) { return 2147483647; }
  if (x <= -2147483648.0) { return -2147483647 - 1; }
  return i32(x);
}
fn weft_to_u32(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let exponent = i32((bits >> 23u) & 255u) - 127;
  let negative = (bits >> 31u) == 1u;
  if (weft_isnan(x) || exponent < 0) { return 0u; }
  if (exponent >= 63) { return select(0xffffffffu, 0u, negative); }
  let mantissa = (bits & 0x7fffffu) | 0x800000u;
  var whole = 0u;
  if (exponent <= 23) {
    whole = mantissa >> u32(23 - exponent);
  } else if (exponent < 55) {
    whole = mantissa << u32(exponent - 23);
  }
  return select(whole, 0u - whole, negative);
}
fn weft_truth(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) != 0u; }

fn weft_max(a: f32, b: f32) -> f32 { return select(select(b, a, a > b || weft_isnan(a)), b, weft_isnan(b)); }
fn weft_min(a: f32, b: f32) -> f32 { return select(select(b, a, a < b || weft_isnan(a)), b, weft_isnan(b)); }
fn weft_clamp(x: f32, low: f32, high: f32) -> f32 {
  if (weft_isnan(x)) { return x; }
  let above = select(x, low, x < low);
  return select(above, high, high < above);
}
fn weft_clamp_i(x: i32, low: i32, high: i32) -> i32 { return min(max(x, low), high); }
fn weft_clamp_u(x: u32, low: u32, high: u32) -> u32 { return min(max(x, low), high); }
fn weft_ne(a: f32, b: f32) -> bool { return weft_isnan(a) || weft_isnan(b) || a != b; }
fn weft_divide_u(a: u32, b: u32) -> u32 {
  if (b == 0u) { return 0u; }
  return a / b;
}
fn weft_remainder_u(a: u32, b: u32) -> u32 {
  if (b == 0u) { return 0u; }
  return a % b;
}
fn weft_floor_divide(a: i32, b: i32) -> i32 {
  if (b == 0) { return 0; }
  if (b == -1) { return -a; }
  let q = a / b;
  return select(q, q - 1, q * b != a && ((a < 0) != (b < 0)));
}
fn weft_remainder_i(a: i32, b: i32) -> i32 {
  if (b == 0 || b == -1) { return 0; }
  let r = a - a / b * b;
  return select(r, r + b, r != 0 && ((r < 0) != (b < 0)));
}
// a - b floor(a / b). The product with the quotient is exact in two parts while the quotient has 12 bits; beyond, the
// remainder of a large quotient is taken in steps.
fn weft_remainder(a: f32, b: f32) -> f32 {
  if (weft_isnan(a) || weft_isnan(b) || weft_isinf(a) || b == 0.0) { return weft_nan(); }
  if (weft_isinf(b)) { return select(b, a, a == 0.0 || ((a < 0.0) == (b < 0.0))); }
  let size = abs(b);
  var r = abs(a);
  for (var step = 0; step < 300 && r >= size; step++) {
    var unit = size;  // size times a power of two, so that the quotient is below 2^11
    let gap = i32((bitcast<u32>(r) >> 23u) & 255u) - i32((bitcast<u32>(size) >> 23u) & 255u);
    if (gap > 10) { unit = bitcast<f32>(bitcast<u32>(size) + (u32(gap - 10) << 23u)); }
    let q = max(floor(r / unit), 1.0);  // a GPU may divide equal numbers to just below 1
    let high = bitcast<f32>(bitcast<u32>(unit) & 0xfffff000u);
    r = (r - q * high) - q * (unit - high);
    if (r < 0.0) { r += unit; }
  }
  r = select(r, -r, a < 0.0);
  return select(r, r + b, r != 0.0 && ((r < 0.0) != (b < 0.0)));
}

// x 2^n in two steps: the result may be subnormal or infinite where 2^n alone is.
fn weft_scale(x: f32, n: i32) -> f32 {
  let half = n >> 1u;
  return x * bitcast<f32>(u32(half + 127) << 23u) * bitcast<f32>(u32(n - half + 127) << 23u);
}
// e^r - 1 - r for |r| <= 0.35, Cephes' polynomial.
fn weft_exp_tail(r: f32) -> f32 {
  var p = 1.9875691500e-4;
  p = p * r + 1.3981999507e-3;
  p = p * r + 8.3334519073e-3;
  p = p * r + 4.1665795894e-2;
  p = p * r + 1.6666665459e-1;
  p = p * r + 5.0000001201e-1;
  return p * r * r;
}
fn weft_exp(x: f32) -> f32 {
  let near = clamp(x, -104.0, 89.0);  // from there on it is 0 or infinite; branches would cost more
  let n = round(near * 1.44269504088896341);
  let r = (near - n * 0.693359375) - n * -2.12194440e-4;  // the first product is exact
  return select(weft_scale(weft_exp_tail(r) + r + 1.0, i32(n)), x, weft_isnan(x));
}
fn weft_exp2(x: f32) -> f32 {
  if (weft_isnan(x)) { return x; }
  if (x >= 128.0) { return weft_inf(); }
  if (x < -150.0) { return 0.0; }
  let n = round(x);
  let r = (x - n) * 0.693147180559945286;
  return weft_scale(weft_exp_tail(r) + r + 1.0, i32(n));
}
fn weft_expm1(x: f32) -> f32 {
  if (abs(x) < 0.35) { return weft_exp_tail(x) + x; }
  return weft_exp(x) - 1.0;
}
// log(1 + m) for sqrt(1/2) - 1 <= m <= sqrt(2) - 1, less m.
fn weft_log_tail(m: f32) -> f32 {
  let z = m * m;
  var p = 7.0376836292e-2;
  p = p * m - 1.1514610310e-1;
  p = p * m + 1.1676998740e-1;
  p = p * m - 1.2420140846e-1;
  p = p * m + 1.4249322787e-1;
  p = p * m - 1.6668057665e-1;
  p = p * m + 2.0000714765e-1;
  p = p * m - 2.4999993993e-1;
  p = p * m + 3.3333331174e-1;
  return p * m * z - 0.5 * z;
}
// x = 2^result.x (1 + result.y), for positive finite x.
fn weft_split(x: f32) -> vec2<f32> {
  var bits = bitcast<u32>(x);
  var e = -126.0;
  if (bits < 0x800000u) {  // subnormal
    bits = bitcast<u32>(f32(bits));
    e = -275.0;
  }
  e += f32(bits >> 23u);
  let m = bitcast<f32>((bits & 0x7fffffu) | 0x3f000000u);
  if (m < 0.70710678118654752) { return vec2<f32>(e - 1.0, m + m - 1.0); }
  return vec2<f32>(e, m - 1.0);
}
fn weft_log(x: f32) -> f32 {
  if (weft_isnan(x)) { return x; }
  if ((bitcast<u32>(x) & 0x7fffffffu) == 0u) { return -weft_inf(); }
  if ((bitcast<u32>(x) >> 31u) == 1u) { return weft_nan(); }
  if (weft_isinf(x)) { return x; }
  let s = weft_split(x);
  return (s.y + (weft_log_tail(s.y) - 2.12194440e-4 * s.x)) + 0.693359375 * s.x;
}
fn weft_log2(x: f32) -> f32 {
  if (weft_isnan(x) || weft_isinf(x) || x <= 0.0) { return weft_log(x); }
  let s = weft_split(x);
  return (s.y + weft_log_tail(s.y)) * 1.44269504088896341 + s.x;
}
fn weft_log1p(x: f32) -> f32 {
  if (x > -0.29 && x < 0.41) { return x + weft_log_tail(x); }
  return weft_log(1.0 + x);
}
fn weft_sqrt(x: f32) -> f32 {
  if (x < 0.0) { return weft_nan(); }
  if (weft_isinf(x)) { return x; }
  return sqrt(x);
}
fn weft_rsqrt(x: f32) -> f32 {
  if (x < 0.0) { return weft_nan(); }
  if (x == 0.0) { return weft_copysign(weft_inf(), x); }
  return 1.0 / weft_sqrt(x);
}

fn weft_tanh(x: f32) -> f32 {
  let a = abs(x);
  if (weft_isnan(x)) { return x; }
  if (a > 9.1) { return weft_copysign(1.0, x); }
  if (a > 0.625) { return weft_copysign(1.0 - 2.0 / (weft_exp(2.0 * a) + 1.0), x); }
  let z = x * x;
  var p = -5.70498872745e-3;
  p = p * z + 2.06390887954e-2;
  p = p * z - 5.37397155531e-2;
  p = p * z + 1.33314422036e-1;
  p = p * z - 3.33332819422e-1;
  return p * z * x + x;
}
fn weft_sigmoid(x: f32) -> f32 {
  let e = weft_exp(-abs(x));
  return select(e, 1.0, x >= 0.0) / (1.0 + e);
}
fn weft_softplus(x: f32) -> f32 {
  if (x > 20.0) { return x; }
  return weft_log1p(weft_exp(x));
}
// N. Juffa's polynomials.
fn weft_erf(x: f32) -> f32 {
  let t = abs(x);
  if (weft_isnan(x)) { return x; }
  if (t > 4.0) { return weft_copysign(1.0, x); }
  let s = x * x;
  if (t > 0.927734375) {
    var r = -1.72853470e-5 * t + 3.83197126e-4;
    r = r * s + (-3.88396438e-3 * t + 2.42546219e-2);
    r = r * t - 1.06777877e-1;
    r = r * t - 6.34846687e-1;
    r = r * t - 1.28717512e-1;
    r = r * t - t;
    return weft_copysign(1.0 - weft_exp(r), x);
  }
  var r = -5.96761703e-4;
  r = r * s + 4.99119423e-3;
  r = r * s - 2.67681349e-2;
  r = r * s + 1.12819925e-1;
  r = r * s - 3.76125336e-1;
  r = r * s + 1.28379166e-1;
  return r * x + x;
}
fn weft_sinh(x: f32) -> f32 {
  let a = abs(x);
  if (weft_isnan(x)) { return x; }
  if (a > 20.0) {
    let h = weft_exp(0.5 * a);
    return weft_copysign(0.5 * h * h, x);
  }
  let e = weft_expm1(a);
  return weft_copysign(0.5 * (e + e / (e + 1.0)), x);
}
fn weft_cosh(x: f32) -> f32 {
  let a = abs(x);
  if (a > 20.0) {
    let h = weft_exp(0.5 * a);
    return 0.5 * h * h;
  }
  let e = weft_exp(a);
  return 0.5 * e + 0.5 / e;
}
fn weft_asinh(x: f32) -> f32 {
  let a = abs(x);
  if (weft_isnan(x)) { return x; }
  if (a > 1.0e4) { return weft_copysign(weft_log(a) + 0.693147180559945286, x); }
  return weft_copysign(weft_log1p(a + a * a / (1.0 + sqrt(a * a + 1.0))), x);
}
fn weft_acosh(x: f32) -> f32 {
  if (x < 1.0) { return weft_nan(); }
  if (x > 1.0e4) { return weft_log(x) + 0.693147180559945286; }
  let t = x - 1.0;
  return weft_log1p(t + sqrt(2.0 * t + t * t));
}
fn weft_atanh(x: f32) -> f32 {
  let a = abs(x);
  if (a > 1.0) { return weft_nan(); }
  if (a == 1.0) { return weft_copysign(weft_inf(), x); }
  return weft_copysign(0.5 * weft_log1p(2.0 * a / (1.0 - a)), x);
}
fn weft_asin_tail(z: f32) -> f32 {
  var p = 4.2163199048e-2;
  p = p * z + 2.4181311049e-2;
  p = p * z + 4.5470025998e-2;
  p = p * z + 7.4953002686e-2;
  p = p * z + 1.6666752422e-1;
  return p * z;
}
fn weft_asin(x: f32) -> f32 {
  let a = abs(x);
  if (weft_isnan(x) || a > 1.0) { return weft_nan(); }
  if (a <= 0.5) { return weft_asin_tail(x * x) * x + x; }
  let z = 0.5 * (1.0 - a);
  let s = sqrt(z);
  return weft_copysign(1.57079632679489662 - 2.0 * (s + s * weft_asin_tail(z)), x);
}
fn weft_acos(x: f32) -> f32 {
  if (weft_isnan(x) || abs(x) > 1.0) { return weft_nan(); }
  if (abs(x) <= 0.5) { return 1.57079632679489662 - weft_asin(x); }
  let z = 0.5 * (1.0 - abs(x));
  let s = sqrt(z);
  let near = 2.0 * (s + s * weft_asin_tail(z));
  return select(near, 3.14159265358979324 - near, x < 0.0);
}
fn weft_atan(x: f32) -> f32 {
  if (weft_isnan(x)) { return x; }
  var a = abs(x);
  var base = 0.0;
  if (a > 2.414213562373095) {
    base = 1.57079632679489662;
    a = -1.0 / a;
  } else if (a > 0.4142135623730950) {
    base = 0.78539816339744831;
    a = (a - 1.0) / (a + 1.0);
  }
  let z = a * a;
  var p = 8.05374449538e-2;
  p = p * z - 1.38776856032e-1;
  p = p * z + 1.99777106478e-1;
  p = p * z - 3.33329491539e-1;
  return weft_copysign(base + (p * z * a + a), x);
}
fn weft_atan2(y: f32, x: f32) -> f32 {
  if (weft_isnan(x) || weft_isnan(y)) { return weft_nan(); }
  let left = (bitcast<u32>(x) >> 31u) == 1u;
  if (y == 0.0) { return weft_copysign(select(0.0, 3.14159265358979324, left), y); }
  if (x == 0.0) { return weft_copysign(1.57079632679489662, y); }
  var angle = 0.0;
  if (weft_isinf(y) && weft_isinf(x)) {
    angle = 0.78539816339744831;
  } else if (weft_isinf(y)) {
    angle = 1.57079632679489662;
  } else if (!weft_isinf(x)) {
    angle = weft_atan(abs(y) / abs(x));
  }
  return weft_copysign(select(angle, 3.14159265358979324 - angle, left), y);
}

// x = n pi/2 + r: (r, n mod 4). The parts of pi/2 have few bits, so that their products with n are exact up to about
// |x| = 1e4; from there the accuracy fades.
fn weft_quarter(x: f32) -> vec2<f32> {
  let n = round(x * 0.636619772367581343);
  let r = (((x - n * 1.5703125) - n * 4.837512969970703125e-4) - n * 7.54953362047672271e-8) - n * 2.56334406825708960e-12;
  return vec2<f32>(r, n - 4.0 * floor(n * 0.25));
}
fn weft_sin_near(r: f32) -> f32 {
  let z = r * r;
  return ((-1.9515295891e-4 * z + 8.3321608736e-3) * z - 1.6666654611e-1) * z * r + r;
}
fn weft_cos_near(r: f32) -> f32 {
  let z = r * r;
  return ((2.443315711809948e-5 * z - 1.388731625493765e-3) * z + 4.166664568298827e-2) * z * z - 0.5 * z + 1.0;
}
fn weft_sin(x: f32) -> f32 {
  if (weft_isnan(x) || weft_isinf(x)) { return weft_nan(); }
  let q = weft_quarter(x);
  let y = select(weft_sin_near(q.x), weft_cos_near(q.x), q.y == 1.0 || q.y == 3.0);
  return select(y, -y, q.y >= 2.0);
}
fn weft_cos(x: f32) -> f32 {
  if (weft_isnan(x) || weft_isinf(x)) { return weft_nan(); }
  let q = weft_quarter(x);
  let y = select(weft_cos_near(q.x), weft_sin_near(q.x), q.y == 1.0 || q.y == 3.0);
  return select(y, -y, q.y == 1.0 || q.y == 2.0);
}
fn weft_tan(x: f32) -> f32 {
  if (weft_isnan(x) || weft_isinf(x)) { return weft_nan(); }
  let q = weft_quarter(x);
  let s = weft_sin_near(q.x);
  let c = weft_cos_near(q.x);
  return select(s / c, -c / s, q.y == 1.0 || q.y == 3.0);
}

// a^b for positive finite a and finite b: 2^(b e + b log2(m)), the first product in two exact parts.
fn weft_pow_positive(a: f32, b: f32) -> f32 {
  let s = weft_split(a);
  let small = b * ((s.y + weft_log_tail(s.y)) * 1.44269504088896341);
  let sum = b * s.x + small;
  if (sum >= 129.0) { return weft_inf(); }
  if (sum < -152.0) { return 0.0; }
  let high = bitcast<f32>(bitcast<u32>(b) & 0xfffff000u);
  let n = round(sum);
  let r = (((high * s.x - n) + (b - high) * s.x) + small) * 0.693147180559945286;
  return weft_scale(weft_exp_tail(r) + r + 1.0, i32(n));
}
fn weft_pow(a: f32, b: f32) -> f32 {
  if (b == 0.0 || a == 1.0) { return 1.0; }
  if (weft_isnan(a) || weft_isnan(b)) { return weft_nan(); }
  let size = abs(a);
  if (weft_isinf(b)) {
    if (size == 1.0) { return 1.0; }
    return select(0.0, weft_inf(), (size > 1.0) == (b > 0.0));
  }
  let whole = floor(b) == b;
  let odd = whole && abs(b) < 16777216.0 && floor(b * 0.5) * 2.0 != b;
  let sign = select(1.0, a, odd);
  if (size == 0.0 || weft_isinf(a)) {
    return weft_copysign(select(0.0, weft_inf(), (size == 0.0) == (b < 0.0)), sign);
  }
  if (a < 0.0 && !whole) { return weft_nan(); }
  return weft_copysign(weft_pow_positive(size, b), sign);
}

// Element i of the random bits of a key: Threefry-2x32, 20 rounds, as src/base/threefry.h.
fn weft_threefry_group(words: vec2<u32>, rotations: vec4<u32>, inject: vec2<u32>) -> vec2<u32> {
  var x = words.x;
  var y = words.y;
  for (var i = 0u; i < 4u; i++) {
    x += y;
    y = ((y << rotations[i]) | (y >> (32u - rotations[i]))) ^ x;
  }
  return vec2<u32>(x, y) + inject;
}
fn weft_random_word(a: u32, b: u32, i: u32) -> u32 {
  let c = a ^ b ^ 0x1bd11bdau;
  let even = vec4<u32>(13u, 15u, 26u, 6u);
  let odd = vec4<u32>(17u, 29u, 16u, 24u);
  var words = weft_threefry_group(vec2<u32>(a, i + b), even, vec2<u32>(b, c + 1u));
  words = weft_threefry_group(words, odd, vec2<u32>(c, a + 2u));
  words = weft_threefry_group(words, even, vec2<u32>(a, b + 3u));
  words = weft_threefry_group(words, odd, vec2<u32>(b, c + 4u));
  words = weft_threefry_group(words, even, vec2<u32>(c, a + 5u));
  return words.x ^ words.y;
}
