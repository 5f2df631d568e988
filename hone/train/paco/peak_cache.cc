// SPDX-License-Identifier: Apache-2.0
#include "hone/train/paco/peak_cache.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "hone/core/check.h"

namespace hone::paco {
namespace {

using data::Point;
using data::ViewGeometry;
using torch::Tensor;

constexpr std::string_view kCache = "PeakCache";

// The point in the middle of a cell, in pixels of the image.
Point point_of(const std::int64_t* cell, const ViewGeometry& view, MapSize map) {
  const auto middle = [](Index at, Index side, Index cells) {
    return (static_cast<double>(at) + 0.5) * static_cast<double>(side) / static_cast<double>(cells);
  };
  return view.inverse_map(
      {middle(cell[1], view.width, map.columns), middle(cell[0], view.height, map.rows)});
}

struct Cell {
  Index row = 0, column = 0;

  friend bool operator==(const Cell&, const Cell&) = default;
};

// Where a view shows a point of the image, if it does.
std::optional<Cell> cell_of(Point point, const ViewGeometry& view, MapSize map) {
  const Point unswapped = view.from_source(point);
  const data::Box whole{0, 0, view.height, view.width};
  if (!whole.contains(unswapped) || view.erased.contains(unswapped)) return std::nullopt;
  const auto at = [](double place, Index side, Index cells) {
    const double share = place * static_cast<double>(cells) / static_cast<double>(side);
    return std::min(static_cast<Index>(share), cells - 1);
  };
  const Point shown = view.map(point);
  return Cell{at(shown.y, view.height, map.rows), at(shown.x, view.width, map.columns)};
}

// Writes the cells of `count` points; false if one has none, or one that another has.
bool find_cells(const double* points, Index count, const ViewGeometry& view, MapSize map,
                std::int64_t* cells) {
  std::vector<Cell> found;
  for (Index k = 0; k < count; ++k) {
    const auto cell = cell_of({points[2 * k], points[2 * k + 1]}, view, map);
    if (!cell || std::ranges::find(found, *cell) != found.end()) return false;
    found.push_back(*cell);
    cells[2 * k] = cell->row, cells[2 * k + 1] = cell->column;
  }
  return true;
}

}  // namespace

PeakCacheImpl::PeakCacheImpl(Index images, Index parts, Index refresh_every)
    : refresh_every_(refresh_every) {
  HONE_CHECK(images > 0, kCache, "at least one image", images);
  HONE_CHECK(parts > 0, kCache, "at least one part", parts);
  HONE_CHECK(refresh_every > 0, kCache, "refresh_every above 0", refresh_every);
  points = register_buffer("points", at::zeros({images, parts, 2}, at::kDouble));
  ages = register_buffer("ages", at::zeros({images}, at::kLong));
  counts = register_buffer("counts", at::zeros({2}, at::kLong));
}

KnownPeaks PeakCacheImpl::recall(const ShownImages& batch, MapSize map) const {
  HONE_REQUIRE(points.is_cpu(), kCache, "Peaks are kept on the CPU only.");
  const Index size = std::ssize(batch.images), parts = points.size(1);
  HONE_CHECK(std::ssize(batch.geometry) == 2 * size, kCache,
             concat("the geometry of ", 2 * size, " views"), std::ssize(batch.geometry));
  const auto unknown = [&] { return at::zeros({size, parts, 2}, at::kLong); };
  KnownPeaks out{unknown(), unknown(), at::zeros({size}, at::kBool)};
  const auto* const age = ages.const_data_ptr<std::int64_t>();
  for (Index i = 0; i < size; ++i) {
    const Index image = batch.images[i];
    HONE_CHECK(image >= 0 && image < ages.size(0), kCache, concat("images below ", ages.size(0)),
               image);
    if (age[image] == 0) continue;
    const double* const kept = points.const_data_ptr<double>() + image * parts * 2;
    const auto find = [&](const ViewGeometry& view, const Tensor& cells) {
      return find_cells(kept, parts, view, map, cells.data_ptr<std::int64_t>() + i * parts * 2);
    };
    out.is_known.data_ptr<bool>()[i] =
        find(batch.geometry[i], out.cells1) && find(batch.geometry[size + i], out.cells2);
  }
  const Tensor cells_known = out.is_known.view({size, 1, 1});
  out.cells1.mul_(cells_known);
  out.cells2.mul_(cells_known);
  return out;
}

void PeakCacheImpl::end_visit(const ShownImages& batch, MapSize map, const KnownPeaks& known,
                              const Tensor& cells) {
  const Index size = std::ssize(batch.images), parts = points.size(1);
  HONE_CHECK(cells.sizes().equals(known.cells1.sizes()) && cells.scalar_type() == at::kLong, kCache,
             concat("int64 cells ", c10::str(known.cells1.sizes())), c10::str(cells.sizes()));
  const Tensor peaks = cells.contiguous(), before = ages.clone();
  const auto* const age = before.const_data_ptr<std::int64_t>();
  for (Index i = 0; i < size; ++i) {
    const Index image = batch.images[i];
    ages.data_ptr<std::int64_t>()[image] = (age[image] + 1) % refresh_every_;
    if (age[image] != 0) continue;
    for (Index k = 0; k < parts; ++k) {
      const Point point = point_of(peaks.const_data_ptr<std::int64_t>() + (i * parts + k) * 2,
                                   batch.geometry[i], map);
      double* const kept = points.data_ptr<double>() + (image * parts + k) * 2;
      kept[0] = point.x, kept[1] = point.y;
    }
  }
  const Index reused = known.is_known.sum().item<Index>();
  counts[0] += size - reused;
  counts[1] += reused;
}

Json PeakCacheImpl::report() const {
  return {{"refresh_every", refresh_every_},
          {"detections", counts[0].item<Index>()},
          {"reused", counts[1].item<Index>()}};
}

}  // namespace hone::paco
