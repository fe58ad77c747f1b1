#pragma once

#include <utility>

#include "backend/webgpu/qmatmul.h"

/// Products whose kernel goes on with the steps behind it (Step::tiles, before, after), tile by tile.
namespace weft::webgpu {

/// The steps around a product, written into its kernel. `index` is the tile, `thread` one of `threads`, and
/// `row` the first of the rows that a workgroup has. `lanes`: neighbours that can shuffle; 1: none.
class TileSteps {
 public:
  TileSteps(Builder& builder, const Step& product, int64_t rows, int64_t threads, int64_t lanes);

  /// Statements in front of the product: what can be loaded while it is computed.
  const std::string& before() const { return before_; }
  /// Statements behind it: this thread has put its sums into tile 0.
  std::string after() const;

 private:
  void sum(const Step& step);
  void take(const Step& step);
  /// The first level at which a step finds its tiles.
  size_t level_of(const Step& step) const;
  /// Bodies of functions of a place of a step: an element, a row that is folded, a word of a block.
  /// `loaded`: inputs that it is given.
  std::string element(const Step& step, const std::vector<bool>& loaded);
  std::string folded_row(const Step& step, int64_t parts);
  std::string block_word(const Step& step);
  /// Puts an element's bits where the output is wanted: into its tile and into memory.
  std::string stored(const Operand& out, std::string_view at, const std::string& bits);

  Builder& builder_;
  const Step& product_;
  int64_t rows_, threads_, lanes_;
  bool is_product_;  ///< and not attention, in front of which is nothing, and whose outcomes all threads see
  size_t functions_ = 0;
  std::string before_;
  std::vector<std::string> levels_;  ///< statements between barriers
  struct Made {
    size_t level = 0;
    const Step* by = nullptr;
  };
  std::vector<Made> made_;  ///< the tiles
};

/// A product with packed weights whose workgroups compute whole tiles, perhaps several, and its form: as many
/// threads as keep the device busy, or what was measured. A row of weights has so many blocks.
std::pair<Step, QuantForm> joined_packed(Context& context, const Step& product, int64_t m, int64_t blocks);

/// Whether a product can put the codes of attention together from what splits left, looked at by so many
/// lanes for each head.
bool takes_parts(const gpu::Device& device, const Step& product, const StoragePtr& codes, int64_t heads,
                 int64_t lanes);

/// Ends a kernel that has the constants of its form, size_m, size_n, blocks, X, load_x, levels, scales and
/// dot_x: the product into tile 0, and the steps around it. `body`: statements that come first.
void multiply_joined(Context& context, Builder& builder, const Step& product, const QuantForm& form,
                     std::string body);

/// A step whose tiles are so many times as wide: a number that divides common_tiles().
Step widened(Step step, int64_t times);
int64_t common_tiles(const Step& step);

/// `tail(row, index, thread)`: the steps after attention, for a workgroup that has the columns of tile
/// `index` of one row at hand: `words` are the bits of column `at`. `lanes`: as for TileSteps.
void declare_tail(Builder& builder, const Step& attention, int64_t threads, int64_t lanes,
                  std::string_view words);

/// A step with tiles as steps of their own.
void apart(Context& context, const Step& step);

/// matmul_batched with tiles, of f32 with rows of floats.
void joined_matmul(Context& context, const Step& product);

}  // namespace weft::webgpu
