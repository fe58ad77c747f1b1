// Which rows of x and of the weights make a row of the result: in a product of all rows they are the same.
fn results() -> u32 { return size_m(); }
fn row_of_x(place: u32) -> u32 { return place; }
fn row_of_result(place: u32) -> u32 { return place; }
fn weights_of(place: u32) -> u32 { return 0u; }
struct Tile { first: u32, end: u32, weights: u32 }
fn tile_of(i: u32) -> Tile { return Tile(i * 64u, size_m(), 0u); }
