#include "op_table/op_table.h"

#include <doctest/doctest.h>

#include "base/paths.h"
#include "op_table/samples.h"

using namespace weft;

TEST_SUITE("cli: op table") {
  TEST_CASE("docs/ops.md is what `weft ops --markdown` prints") {
    const bool same = read_text(WEFT_SOURCE_DIR "/docs/ops.md") == op_table::markdown();
    CHECK_MESSAGE(same, "write it anew: build/weft ops --markdown > docs/ops.md");
  }

  TEST_CASE("every op that users call has a sample") {
    for (const Op* op : all_ops())
      if (op->kind == OpKind::composed) {
        CAPTURE(op->name);
        CHECK(op_table::sample_of(*op));
      }
  }
}
