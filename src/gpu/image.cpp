// Textures that buffers are read through.
#include "gpu/state.h"

namespace weft::gpu {

Image& Device::State::image_of(const Buffer::State& buffer) {
  const auto known = images.find(buffer.memory.id);
  if (known != images.end()) return known->second;
  const uint64_t bytes = buffer.size;
  if (bytes == 0 || bytes % 16 != 0 || bytes > kMostImageBytes)
    fail(ErrorKind::unsupported,
         "[gpu] buffer '{}' of {} bytes cannot be an image: those have whole vectors of 16 bytes, {} at most",
         buffer.label, bytes, kMostImageBytes);
  const abi::TextureDescriptor descriptor{
      .next = nullptr,
      .label = view_of(buffer.label),
      .usage = abi::kTextureStorage | abi::kTextureCopyDst,
      .dimension = abi::kTexture2D,
      .width = kImageWidth,
      .height = static_cast<uint32_t>((bytes + kImageRow - 1) / kImageRow),
      .layers = 1,
      .format = abi::kFormatRgba32Uint,
      .mip_levels = 1,
      .samples = 1,
      .view_format_count = 0,
      .view_formats = nullptr};
  ErrorScope validation(*this, abi::kFilterValidation);
  ErrorScope memory_scope(*this, abi::kFilterMemory);
  Image image{.texture = api().DeviceCreateTexture(device, &descriptor), .bytes = bytes};
  if (image.texture) image.view = api().TextureCreateView(image.texture, nullptr);
  const std::optional<std::string> no_memory = memory_scope.pop(), mistake = validation.pop();
  if (!image.view || no_memory || mistake) {
    if (image.view) api().TextureViewRelease(image.view);
    if (image.texture) api().TextureRelease(image.texture);
    check();
    fail(mistake ? ErrorKind::invalid : ErrorKind::memory,
         "[gpu] image of buffer '{}' of {} bytes on '{}': {}", buffer.label, bytes, name,
         mistake ? *mistake : no_memory.value_or("the library returned none"));
  }
  counters.bytes_active += bytes;
  counters.bytes_peak = std::max(counters.bytes_peak, counters.bytes_active);
  return images.emplace(buffer.memory.id, image).first->second;
}

void Device::State::destroy_image(uint64_t id) {
  const auto image = images.find(id);
  if (image == images.end() || dead()) return;
  release_bind_groups(id);
  api().TextureViewRelease(image->second.view);
  api().TextureDestroy(image->second.texture);
  api().TextureRelease(image->second.texture);
  counters.bytes_active -= image->second.bytes;
  images.erase(image);
}

}  // namespace weft::gpu
