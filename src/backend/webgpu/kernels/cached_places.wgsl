// Who works at what: for the kernels of attention over a cache. Written around this by cached_decode.cpp: HEADS and sizes.
const HIDDEN = -3.0e38;  // the score of a key that a token does not see

// What a workgroup works at: `count` query heads from `head` on, whose rows of the output are numbered from `row` on.
struct Place { token: u32, key_head: u32, head: u32, count: u32, row: u32 }
fn place_of(i: u32) -> Place {
  let key_head = i / BLOCKS % KEY_HEADS;
  let token = i / BLOCKS / KEY_HEADS;
  let first = i % BLOCKS * HEADS;
  let head = key_head * GROUP + first;
  return Place(token, key_head, head, min(HEADS, GROUP - first), token * KEY_HEADS * GROUP + head);
}
