// Promotion: the table of docs/dtypes.md.
#include "weft/dtype.h"

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>

#include "weft/create.h"
#include "weft/ops.h"

using namespace weft;

namespace {

Array of(DType dtype) {
  return ones({2}, {.dtype = dtype});
}

/// Rows of the first table that starts with `head`, cells without spaces and bars.
std::vector<std::vector<std::string>> table(const std::string& path, const std::string& head) {
  std::ifstream file(path);
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(file, line);) {
    if (rows.empty() && line.rfind(head, 0) != 0) continue;
    if (line.empty()) break;
    rows.emplace_back();
    std::istringstream cells(line);
    for (std::string cell; cells >> cell;)
      if (cell != "|") rows.back().push_back(cell);
  }
  return rows;
}

}  // namespace

TEST_SUITE("base: dtypes") {
  TEST_CASE("two arrays promote as the table in docs/dtypes.md says") {
    const auto rows = table(WEFT_SOURCE_DIR "/docs/dtypes.md", "| a, b |");
    REQUIRE(rows.size() == 11);  // with the head and the line below it
    for (size_t r = 2; r < rows.size(); ++r)
      for (size_t c = 1; c < rows[r].size(); ++c) {
        const DType a = dtype_from_name(rows[r][0]), b = dtype_from_name(rows[0][c + 1]);
        CAPTURE(name_of(a));
        CAPTURE(name_of(b));
        CHECK(name_of(promote(a, b)) == rows[r][c]);
        CHECK(promote(b, a) == promote(a, b));
        if (a == DType::boolean && b == DType::boolean) continue;  // have no sum
        CHECK((of(a) + of(b)).dtype() == promote(a, b));
        CHECK((of(a) < of(b)).dtype() == DType::boolean);
        CHECK(where(of(DType::boolean), of(a), of(b)).dtype() == promote(a, b));
        CHECK(cat({of(a), of(b)}, 0).dtype() == promote(a, b));
      }
  }

  TEST_CASE("a number takes the array's dtype unless it is of a higher kind") {
    for (const DType d : {DType::f32, DType::f16, DType::bf16}) {
      CHECK((of(d) + 1).dtype() == d);
      CHECK((2.5 * of(d)).dtype() == d);
      CHECK((of(d) / 3).dtype() == d);
    }
    for (const DType d : {DType::i32, DType::u32, DType::i64, DType::u8, DType::i8}) {
      CHECK((of(d) + 1).dtype() == d);
      CHECK((of(d) * true).dtype() == d);
      CHECK((of(d) + 0.5).to_vector() == std::vector<float>{1.5f, 1.5f});
      CHECK((of(d) / 2).to_vector() == std::vector<float>{0.5f, 0.5f});
    }
    CHECK((of(DType::boolean) + 1).dtype() == DType::i32);
    CHECK((of(DType::boolean) * 0.5).dtype() == DType::f32);
    CHECK((of(DType::boolean) & true).dtype() == DType::boolean);
    CHECK((of(DType::u8) - 2).to_vector<int32_t>() == std::vector<int32_t>{255, 255});  // wraps
  }

  TEST_CASE("values survive promotion") {
    const Array big = Array::from_vector(std::vector<uint32_t>{0xffffffff}, {1});
    CHECK((big + Array::from_vector(std::vector<int32_t>{-1}, {1})).item<int64_t>() == 0xfffffffe);
    CHECK((Array::from_vector(std::vector<uint8_t>{200}, {1}) +
           Array::from_vector(std::vector<int8_t>{-100}, {1}))
              .item<int32_t>() == 100);
  }
}
