// Which rows of x and of the weights make a row of the result, in tiles of those that have chosen the same matrix. Written
// around this by experts.cpp: places(i), words of what expert_places.wgsl has put there; share(), the rows of the result
// that a row of x serves.
struct Tile { first: u32, end: u32, weights: u32 }
fn tile_of(i: u32) -> Tile { return Tile(places(3u * i), places(3u * i + 1u), places(3u * i + 2u)); }
fn row_of_result(place: u32) -> u32 { return places(3u * tiles() + place); }
fn row_of_x(place: u32) -> u32 { return row_of_result(place) / share(); }
