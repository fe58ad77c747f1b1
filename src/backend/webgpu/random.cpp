// The kernel `random_bits`: counter based, so that every element can be made by itself.
#include "backend/webgpu/builder.h"
#include "base/error.h"

namespace weft::webgpu {

void random_bits(Context& context, const Step& step) {
  const Operand& key = step.inputs[0];
  Builder builder("random_bits");
  const std::string first = builder.load(key, builder.number(key.layout.offset)),
                    second = builder.load(key, builder.number(key.layout.offset + key.layout.strides[0]));
  builder.code = fmt::format(
      "fn element(i: u32) -> Result {{ return Result(weft_random_word({}, {}, i)); }}\n", first, second);
  builder.map(context, step.outputs);
}

}  // namespace weft::webgpu
