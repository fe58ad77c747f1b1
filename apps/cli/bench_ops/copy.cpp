#include "bench_ops/copy.h"

#include "bench_ops/timing.h"

namespace weft::bench_ops {

Copy::Copy(Backend& backend, bool large)
    : backend_(backend),
      bytes_(large ? 1 << 30 : 64 << 20),
      storages_{backend.alloc(bytes_, "from"), backend.alloc(bytes_, "to")} {
  backend.write(storages_[0], 0, std::vector<std::byte>(bytes_, std::byte{1}));
  const Layout words = Layout::contiguous({static_cast<int64_t>(bytes_ / 4)});
  const Step step{.kernel = "copy",
                  .inputs = {{storages_[0], DType::f32, words}},
                  .outputs = {{storages_[1], DType::f32, words}}};
  kernel_ = backend.prepare(std::span(&step, 1), storages_, true);
  const double driver = speed();
  by_kernel_ = true;
  by_kernel_ = speed() > driver;
}

void Copy::run() {
  if (by_kernel_)
    backend_.run(*kernel_, storages_, {});
  else
    backend_.copy(storages_[0], 0, storages_[1], 0, bytes_);
}

double Copy::speed() {
  return bytes() / median_seconds(backend_, [&] { run(); });
}

}  // namespace weft::bench_ops
